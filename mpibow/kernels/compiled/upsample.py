"""Larger images, a line at a time: between two of the image's lines, then between neighbours in it."""

from math import prod

import numpy as np

from mpibow.graph import FLOAT, Buffers, Call, Kernel, Shapes
from mpibow.ops import Upsample
from mpibow.ops.upsample import neighbours

from .native import Address, Arguments, Back, Floats, Words, floats, native, row_at

_f = np.float32


@native
def enlarge(
    back: Back,
    x: Address,
    y: Address,
    line: Floats,
    images: int,
    h: int,
    w: int,
    high: int,
    wide: int,
    above: Words,
    below: Words,
    down: Floats,
    left: Words,
    right: Words,
    across: Floats,
) -> None:
    """y (images, high, wide) = x (images, h, w) enlarged: row i lies between rows above[i] and below[i] by the share
    down[i], column j likewise between left[j] and right[j]. Or, if `back`, x = its gradient, of the gradient y."""
    if back:
        floats(x, images * h * w)[:] = 0
    for image in range(images):
        for i in range(high):
            x0 = row_at(x, image * h + above[i], w)
            x1 = row_at(x, image * h + below[i], w)
            y_row = row_at(y, image * high + i, wide)
            share = down[i]
            if back:
                line[:] = 0
                for j in range(wide):
                    part = across[j] * y_row[j]
                    line[left[j]] += y_row[j] - part
                    line[right[j]] += part
                for j in range(w):
                    part = share * line[j]
                    x0[j] += line[j] - part
                    x1[j] += part
            else:
                for j in range(w):
                    line[j] = x0[j] + share * (x1[j] - x0[j])
                for j in range(wide):
                    y_row[j] = line[left[j]] + across[j] * (line[right[j]] - line[left[j]])


def buffers(op: Upsample, shapes: Shapes) -> Buffers:
    line = {"line": ((shapes.x[0][3],), FLOAT)}
    return Buffers(forward=line, backward=line)


def _lines(call: Call) -> Arguments:
    *images, h, w = call.shapes.x[0]
    high, wide = call.shapes.y[2:]
    found: Arguments = {"images": prod(images), "h": h, "w": w, "high": high, "wide": wide}
    names = ("above", "below", "down"), ("left", "right", "across")
    for extent, scale, each in zip((h, w), call.op.scale, names, strict=True):
        near, far, share = neighbours(extent, scale, call.op.mode)
        found |= zip(each, (near, far, share.astype(np.float32)), strict=True)
    return found


KERNELS = {
    Upsample: Kernel(
        enlarge.half(lambda call: {"back": False, **_lines(call)}),
        enlarge.half(lambda call: {"back": True, "x": call.dx0, "y": call.dy, **_lines(call)}),
        buffers,
    )
}
