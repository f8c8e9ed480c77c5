"""The mean over an image, in lanes: the channels that lie side by side in memory."""

from __future__ import annotations

import numpy as np

from mpibow.graph.formats import canonical, parse
from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes
from mpibow.kernels.compiled.command import command, floats, native, words
from mpibow.ops import GlobalAvgPool2d

_f = np.float32
WIDTH = 128  # elements at least: shorter inner loops leave the vector registers, longer ones pay in their remainders


def _lanes(tag: str, channels: int) -> int:
    """1 for abcd, the block for aBcd16b, all channels for acdb; 0 for a layout of another kind."""
    match parse(tag):
        case ((0, 1, 2, 3), ()):
            return 1
        case ((0, 1, 2, 3), ((1, block),)) if channels % block == 0:
            return block
        case ((0, 2, 3, 1), ()):
            return channels
    return 0


@native
def mean(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, sums, groups, positions, lanes, width): y (groups, lanes) = the mean of x (groups, positions, lanes)."""
    a = words(arguments, count)
    lanes, width = a[5], a[6]
    size, scale = a[4] * lanes, _f(1.0 / a[4])
    whole = size - size % width
    sums = floats(a[2], width)
    for group in range(a[3]):
        x, y = floats(a[0] + 4 * group * size, size), floats(a[1] + 4 * group * lanes, lanes)
        if lanes == 1:
            total = _f(0)
            for i in range(size):
                total += x[i]
            y[0] = scale * total
            continue
        for i in range(width):
            sums[i] = _f(0)
        for start in range(0, whole, width):
            part = x[start : start + width]
            for i in range(width):
                sums[i] += part[i]
        for i in range(whole, size):
            sums[i - whole] += x[i]
        for j in range(lanes):
            y[j] = scale * sums[j]
        for start in range(lanes, width, lanes):
            for j in range(lanes):
                y[j] += scale * sums[start + j]
    return 0


@native
def mean_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, dx, shares, groups, positions, lanes, width): dx (groups, positions, lanes) = dy / positions."""
    a = words(arguments, count)
    lanes, width = a[5], a[6]
    size, scale = a[4] * lanes, _f(1.0 / a[4])
    whole = size - size % width
    shares = floats(a[2], width)
    for group in range(a[3]):
        dy, dx = floats(a[0] + 4 * group * lanes, lanes), floats(a[1] + 4 * group * size, size)
        if lanes == 1:
            share = scale * dy[0]
            for i in range(size):
                dx[i] = share
            continue
        for start in range(0, width, lanes):
            for j in range(lanes):
                shares[start + j] = scale * dy[j]
        for start in range(0, whole, width):
            part = dx[start : start + width]
            for i in range(width):
                part[i] = shares[i]
        for i in range(whole, size):
            dx[i] = shares[i - whole]
    return 0


def _extents(shapes: Shapes) -> tuple[int, int, int, int]:
    """Groups, positions, lanes, and the number of elements that are summed side by side."""
    n, channels, rows, columns = shapes.x[0]
    lanes = _lanes(shapes.formats.x[0], channels)
    return n * channels // lanes, rows * columns, lanes, -(-WIDTH // lanes) * lanes


def formats(op: GlobalAvgPool2d, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    (x,), (tag,) = shapes.x, given
    return Formats((tag if _lanes(tag, x[1]) else canonical(x),), canonical(shapes.y))


def buffers(op: GlobalAvgPool2d, shapes: Shapes) -> Buffers:
    row = {"row": ((_extents(shapes)[-1],), FLOAT)}
    return Buffers(forward=row, backward=row)


def forward(call: Call) -> Run:
    return command(mean, call.x[0], call.y, call.scratch["row"], *_extents(call.shapes))


def backward(call: Call) -> Run:
    (dx,) = call.dx
    assert dx is not None
    return command(mean_back, call.dy, dx, call.scratch["row"], *_extents(call.shapes))
