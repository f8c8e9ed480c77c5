"""Stored images made a net's input: windows cropped a row at a time, squares cut out, pixels normalised."""

import math

import numpy as np

from mpibow.graph import Array, Call, Kernel, Run
from mpibow.ops import Augment, CentreCrop, Cutout, Normalise, image as reference
from mpibow.ops.philox import stream

from .colour import of_pixels
from .native import Address, Floats, Words, floats, native, octets, row_at
from .numeric import first_block, inlined

_f = np.float32
_u = np.uint64


@inlined
def _put(row: Array, target: Array, flip: bool) -> None:
    """target = row, or the row from right to left."""
    n = _u(len(row))  # unsigned: the test for an index below 0 would keep the second loop scalar
    if flip:
        for j in range(n):
            target[n - _u(1) - j] = row[j]
    else:
        for j in range(n):
            target[j] = row[j]


@inlined
def _clear(target: Array) -> None:
    for j in range(len(target)):
        target[j] = 0


@inlined
def _between(row: Array, target: Array, start: int, flip: bool) -> None:
    """target = zeros, from `start` on the row, zeros."""
    end = start + len(row)
    _clear(target[:start])
    _put(row, target[start:end], flip)
    _clear(target[end:])


@inlined
def _place(word: np.uint64, places: int) -> int:
    """One of so many places, drawn by a word of 32 bits."""
    return int(np.int64(word * _u(places) >> _u(32)))


@native
def windows(
    x: Address, y: Address, n: int, pad: int, flips: bool, node: int, sizes: Words, counter: Address = None
) -> None:
    """y = a random window of every image, or without counters its middle, with zeros around the image: every number is
    written once.

    sizes are channels, height and width of an image, rows and columns of a window, whether x is uint8.
    """
    channels = sizes[0]
    height = sizes[1]
    width = sizes[2]
    rows = sizes[3]
    columns = sizes[4]
    octet = sizes[5]
    for i in range(n):
        top = (height - rows) // 2
        left = (width - columns) // 2
        flip = False
        if counter:
            w = first_block(counter, i, node)
            top = _place(w[0], height + 2 * pad - rows + 1) - pad
            left = _place(w[1], width + 2 * pad - columns + 1) - pad
            flip = flips and w[2] >> _u(31) != 0
        first, last = max(-left, 0), min(columns, width - left)  # the columns of the window that lie in the image
        start = columns - last if flip else first
        length = last - first
        for c in range(i * channels, (i + 1) * channels):
            for r in range(rows):
                row = top + r
                to = (c * rows + r) * columns
                at = (c * height + row) * width + left + first
                count = length if 0 <= row < height else 0
                if octet:
                    _between(octets(x + at, count), octets(y + to, columns), start, flip)
                else:
                    _between(floats(x + 4 * at, count), floats(y + 4 * to, columns), start, flip)


@native
def cut(
    x: Address, counter: Address, y: Address, n: int, length: int, node: int, channels: int, height: int, width: int
) -> None:
    """y = x with a square of zeros."""
    size = channels * height * width
    for i in range(n):
        w = first_block(counter, i, node)
        top = _place(w[0], height) - length // 2
        left = _place(w[1], width) - length // 2
        x_row = row_at(x, i, size)
        y_row = row_at(y, i, size)
        first = max(left, 0)
        last = min(left + length, width)
        for j in range(size):
            y_row[j] = x_row[j]
        for c in range(channels):
            for row in range(max(top, 0), min(top + length, height)):
                start = (c * height + row) * width
                _clear(y_row[start + first : start + last])


def _sizes(call: Call) -> Array:
    x = call.x0
    y = call.y
    return np.array([*x.shape[1:], *y.shape[2:], x.dtype == np.uint8], np.int64)


def cutout_forward(call: Call) -> Run:
    n, channels, height, width = call.x0.shape
    return cut.on(call, n=n, channels=channels, height=height, width=width, node=stream(call.name))


@inlined
def _centred(pixels: Array, row: Array, mean: Array, scale: np.float32) -> None:
    """row = (pixels - mean) scale; there is one mean, or one for each pixel."""
    if len(mean) == 1:
        one = mean[0]
        for i in range(len(row)):
            row[i] = (_f(pixels[i]) - one) * scale
    else:
        for i in range(len(row)):
            row[i] = (_f(pixels[i]) - mean[i]) * scale


@native
def normalised(
    x: Address,
    y: Address,
    means: Address,
    scales: Floats,
    planes: int,
    channels: int,
    size: int,
    each: int,
    octet: bool,
) -> None:
    """y (n, channels, size) = (x - mean) scale, with `each` means a channel: 1 or `size`; x is uint8 where `octet`."""
    for plane in range(planes):
        channel = plane % channels
        scale = scales[channel]
        mean = row_at(means, channel, each)
        row = row_at(y, plane, size)
        if octet:
            _centred(octets(x + plane * size, size), row, mean, scale)
        else:
            _centred(row_at(x, plane, size), row, mean, scale)


def normalise_forward(call: Call) -> Run:
    y = call.y
    means = np.array(call.op.mean, _f)
    scales = (1.0 / np.array(call.op.std, np.float64)).astype(_f)
    n, channels, *rest = y.shape
    return normalised.on(
        call,
        means=means,
        scales=scales,
        planes=n * channels,
        channels=channels,
        size=math.prod(rest),
        each=len(means) // channels,
        octet=call.x0.dtype == np.uint8,
    )


KERNELS = {
    # NumPy's scratch, 56 bytes a sample, for its kernel: with pixels that are neither uint8 nor float32
    Augment: Kernel(
        of_pixels(
            lambda call: windows.on(
                call, n=len(call.y), flips=call.op.flip, sizes=_sizes(call), node=stream(call.name)
            ),
            reference.augment_forward,
        ),
        buffers=reference.augment_buffers,
    ),
    CentreCrop: Kernel(
        of_pixels(
            lambda call: windows.on(call, n=len(call.y), pad=0, flips=False, node=0, sizes=_sizes(call)),
            reference.centre_forward,
        )
    ),
    Cutout: Kernel(cutout_forward),
    Normalise: Kernel(of_pixels(normalise_forward, reference.normalise_forward)),
}
