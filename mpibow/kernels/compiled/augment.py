"""Spatial augmentation: windows cropped from stored images a row at a time, squares cut out, at places from Philox."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.arguments import Address, Words
from mpibow.kernels.compiled.command import floats, native, octets
from mpibow.kernels.compiled.numeric import first_block, inlined
from mpibow.ops.augment import buffers as reference_buffers
from mpibow.ops.augment import centre_forward as reference_centre
from mpibow.ops.augment import forward as reference_forward
from mpibow.ops.philox import stream

_u = np.uint64


@inlined
def _put(row: Any, target: Any, flip: Any) -> None:
    """target = row, or the row from right to left."""
    n = _u(len(row))  # unsigned: the test for an index below 0 would keep the second loop scalar
    if flip:
        for j in range(n):
            target[n - _u(1) - j] = row[j]
    else:
        for j in range(n):
            target[j] = row[j]


@inlined
def _clear(target: Any) -> None:
    for j in range(len(target)):
        target[j] = 0


@inlined
def _between(row: Any, target: Any, start: Any, flip: Any) -> None:
    """target = zeros, from `start` on the row, zeros."""
    end = start + len(row)
    _clear(target[:start])
    _put(row, target[start:end], flip)
    _clear(target[end:])


@inlined
def _window(x: Any, y: Any, sizes: Any, top: Any, left: Any, flip: Any) -> None:
    """y = the window at (top, left) of the image at x, with zeros around the image: every number is written once."""
    channels, height, width, rows, columns, octet = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]
    first, last = max(-left, 0), min(columns, width - left)  # the columns of the window that lie in the image
    start, length = columns - last if flip else first, last - first
    for c in range(channels):
        for r in range(rows):
            row, to = top + r, (c * rows + r) * columns
            at, count = (c * height + row) * width + left + first, length if 0 <= row < height else 0
            if octet:
                _between(octets(x + at, count), octets(y + to, columns), start, flip)
            else:
                _between(floats(x + 4 * at, count), floats(y + 4 * to, columns), start, flip)


@native
def windows(x: Address, counters: Address, y: Address, n: int, pad: int, flips: bool, node: int, sizes: Words) -> None:
    """y = a random window of every image.

    sizes are channels, height and width of an image, rows and columns of a window, whether x is uint8.
    """
    width = 1 if sizes[5] else 4  # bytes of a number
    image, window = width * sizes[0] * sizes[1] * sizes[2], width * sizes[0] * sizes[3] * sizes[4]
    tops, lefts = sizes[1] + 2 * pad - sizes[3] + 1, sizes[2] + 2 * pad - sizes[4] + 1
    for i in range(n):
        w = first_block(counters, i, node)
        top, left = np.int64(w[0] * _u(tops) >> _u(32)) - pad, np.int64(w[1] * _u(lefts) >> _u(32)) - pad
        flip = flips and w[2] >> _u(31) != 0
        _window(x + i * image, y + i * window, sizes, top, left, flip)


@native
def centres(x: Address, y: Address, n: int, sizes: Words) -> None:
    """y = the middle of every image; sizes as in `windows`."""
    width = 1 if sizes[5] else 4
    image, window = width * sizes[0] * sizes[1] * sizes[2], width * sizes[0] * sizes[3] * sizes[4]
    top, left = (sizes[1] - sizes[3]) // 2, (sizes[2] - sizes[4]) // 2
    for i in range(n):
        _window(x + i * image, y + i * window, sizes, top, left, False)


@native
def cut(
    x: Address, counters: Address, y: Address, n: int, length: int, node: int, channels: int, height: int, width: int
) -> None:
    """y = x with a square of zeros."""
    size = channels * height * width
    for i in range(n):
        w = first_block(counters, i, node)
        top = int(np.int64(w[0] * _u(height) >> _u(32))) - length // 2
        left = int(np.int64(w[1] * _u(width) >> _u(32))) - length // 2
        x_row, y_row = floats(x + 4 * i * size, size), floats(y + 4 * i * size, size)
        first, last = max(left, 0), min(left + length, width)
        for j in range(size):
            y_row[j] = x_row[j]
        for c in range(channels):
            for row in range(max(top, 0), min(top + length, height)):
                start = (c * height + row) * width
                _clear(y_row[start + first : start + last])


buffers = reference_buffers  # for NumPy's kernel, with pixels that are neither uint8 nor float32: 56 bytes a sample


def _sizes(call: Call) -> Array | None:
    """The sizes, or None for pixels that are neither uint8 nor float32."""
    x, y = call.x[0], call.y
    if x.dtype not in (np.uint8, np.float32):
        return None
    return np.array([*x.shape[1:], *y.shape[2:], x.dtype == np.uint8], np.int64)


def forward(call: Call) -> Run:
    op, sizes = call.op, _sizes(call)
    if sizes is None:
        return reference_forward(call)
    return windows.on(call, n=len(call.y), pad=op.pad, flips=op.flip, sizes=sizes, **_draws(call))


def centre_forward(call: Call) -> Run:
    sizes = _sizes(call)
    if sizes is None:
        return reference_centre(call)
    return centres.on(call, n=len(call.y), sizes=sizes)


def cutout_forward(call: Call) -> Run:
    n, channels, height, width = call.x[0].shape
    extents = {"n": n, "channels": channels, "height": height, "width": width}
    return cut.on(call, length=call.op.length, **extents, **_draws(call))


def _draws(call: Call) -> dict[str, Any]:
    return {"counters": call.x[1], "node": stream(call.name)}
