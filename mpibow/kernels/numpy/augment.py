"""Augmentation of places: windows copied out of stored images and squares cut out, where Philox says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.philox import philox, stream
from mpibow.ops import Augment, Cutout


def block_specs(samples: int) -> dict[str, Spec]:
    """The scratch of `draw_block`."""
    return {"words": ((4, samples), "uint64"), "key": ((samples,), "uint64"), "work": ((2, samples), "uint64")}


def draw_block(counter: Array, node: int, scratch: Mapping[str, Array]) -> Run:
    """Fills scratch["words"] (4, n) with the first Philox block of every sample of counter (n, 4)."""
    words, key, work = scratch["words"], scratch["key"], scratch["work"]
    seed, epoch, low, high = counter.T

    def run() -> None:
        words[0].fill(0)
        for target, source in zip(words[1:], (low, high, epoch), strict=True):
            np.copyto(target, source)
        np.copyto(key, seed)
        philox(words, key, node, work)

    return run


def buffers(op: Augment | Cutout, shapes: Shapes) -> Buffers:
    return Buffers(forward=block_specs(shapes.y[0]))


def forward(call: Call) -> Run:
    (x, counter), y, pad, flip = call.x, call.y, call.op.pad, call.op.flip
    words, draw = call.scratch["words"], draw_block(counter, stream(call.name), call.scratch)
    height, width = x.shape[2:]
    rows, columns = y.shape[2:]
    tops, lefts = height + 2 * pad - rows + 1, width + 2 * pad - columns + 1

    def run() -> None:
        draw()
        if pad:
            y.fill(0)
        for n in range(len(x)):
            top = (int(words[0, n]) * tops >> 32) - pad  # of the window, in the image
            left = (int(words[1, n]) * lefts >> 32) - pad
            target = y[n, :, :, ::-1] if flip and words[2, n] >> 31 else y[n]
            a, b = max(-top, 0), min(rows, height - top)  # the rows of the window that lie in the image
            c, d = max(-left, 0), min(columns, width - left)
            np.copyto(target[:, a:b, c:d], x[n, :, a + top : b + top, c + left : d + left])

    return run


def centre_forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    rows, columns = y.shape[2:]
    top, left = (x.shape[2] - rows) // 2, (x.shape[3] - columns) // 2
    window = x[:, :, top : top + rows, left : left + columns]

    def run() -> None:
        np.copyto(y, window)

    return run


def cutout_forward(call: Call) -> Run:
    (x, counter), y, length = call.x, call.y, call.op.length
    words, draw = call.scratch["words"], draw_block(counter, stream(call.name), call.scratch)
    height, width = x.shape[2:]

    def run() -> None:
        draw()
        np.copyto(y, x)
        for n in range(len(x)):
            top = (int(words[0, n]) * height >> 32) - length // 2
            left = (int(words[1, n]) * width >> 32) - length // 2
            y[n, :, max(top, 0) : top + length, max(left, 0) : left + length] = 0

    return run
