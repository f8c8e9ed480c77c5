"""Larger images, a line at a time: between two of the image's lines, then between neighbours in it."""

from __future__ import annotations

from math import prod

import numpy as np

from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.command import command, floats, native, words
from mpibow.ops import Upsample
from mpibow.ops.upsample import neighbours

_f = np.float32


@native
def enlarge(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, line (w,), images, h, w, high, wide, low, high and share of rows, the same of columns)."""
    a = words(arguments, count)
    h, w, high, wide = a[4], a[5], a[6], a[7]
    above, below, down = words(a[8], high), words(a[9], high), floats(a[10], high)
    left, right, across = words(a[11], wide), words(a[12], wide), floats(a[13], wide)
    line = floats(a[2], w)
    for image in range(a[3]):
        for i in range(high):
            x0, x1 = floats(a[0] + 4 * (image * h + above[i]) * w, w), floats(a[0] + 4 * (image * h + below[i]) * w, w)
            y, share = floats(a[1] + 4 * (image * high + i) * wide, wide), down[i]
            for j in range(w):
                line[j] = x0[j] + share * (x1[j] - x0[j])
            for j in range(wide):
                y[j] = line[left[j]] + across[j] * (line[right[j]] - line[left[j]])
    return 0


@native
def enlarge_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, dx, and the arguments of `enlarge` behind x and y)."""
    a = words(arguments, count)
    h, w, high, wide = a[4], a[5], a[6], a[7]
    above, below, down = words(a[8], high), words(a[9], high), floats(a[10], high)
    left, right, across = words(a[11], wide), words(a[12], wide), floats(a[13], wide)
    line, whole = floats(a[2], w), floats(a[1], a[3] * h * w)
    for i in range(a[3] * h * w):
        whole[i] = _f(0)
    for image in range(a[3]):
        for i in range(high):
            x0, x1 = floats(a[1] + 4 * (image * h + above[i]) * w, w), floats(a[1] + 4 * (image * h + below[i]) * w, w)
            dy, share = floats(a[0] + 4 * (image * high + i) * wide, wide), down[i]
            for j in range(w):
                line[j] = _f(0)
            for j in range(wide):
                part = across[j] * dy[j]
                line[left[j]] += dy[j] - part
                line[right[j]] += part
            for j in range(w):
                part = share * line[j]
                x0[j] += line[j] - part
                x1[j] += part
    return 0


def buffers(op: Upsample, shapes: Shapes) -> Buffers:
    line: dict[str, Spec] = {"line": ((shapes.x[0][3],), FLOAT)}
    return Buffers(forward=line, backward=line)


def _tables(op: Upsample, image: Array) -> list[Array]:
    found = []
    for extent, scale in zip(image.shape[2:], op.scale, strict=True):
        low, high, share = neighbours(extent, scale, op.mode)
        found += [low, high, share.astype(np.float32)]
    return found


def forward(call: Call) -> Run:
    x, y, line = call.x[0], call.y, call.scratch["line"]
    return command(enlarge, x, y, line, prod(x.shape[:2]), *x.shape[2:], *y.shape[2:], *_tables(call.op, x))


def backward(call: Call) -> Run:
    (dx,), dy, line = call.dx, call.dy, call.scratch["line"]
    assert dx is not None
    return command(enlarge_back, dy, dx, line, prod(dx.shape[:2]), *dx.shape[2:], *dy.shape[2:], *_tables(call.op, dx))
