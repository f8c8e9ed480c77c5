"""The mean over an image, in lanes: the channels that lie side by side in memory."""

from __future__ import annotations

import numpy as np

from mpibow.graph.formats import canonical, parse
from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes
from mpibow.kernels.compiled.arguments import Address, Floats
from mpibow.kernels.compiled.command import floats, native
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
def mean(x: Address, y: Address, sums: Floats, groups: int, positions: int, lanes: int, width: int) -> None:
    """y (groups, lanes) = the mean of x (groups, positions, lanes)."""
    size, scale = positions * lanes, _f(1.0 / positions)
    whole = size - size % width
    for group in range(groups):
        x_row, y_row = floats(x + 4 * group * size, size), floats(y + 4 * group * lanes, lanes)
        if lanes == 1:
            total = _f(0)
            for i in range(size):
                total += x_row[i]
            y_row[0] = scale * total
            continue
        for i in range(width):
            sums[i] = _f(0)
        for start in range(0, whole, width):
            part = x_row[start : start + width]
            for i in range(width):
                sums[i] += part[i]
        for i in range(whole, size):
            sums[i - whole] += x_row[i]
        for j in range(lanes):
            y_row[j] = scale * sums[j]
        for start in range(lanes, width, lanes):
            for j in range(lanes):
                y_row[j] += scale * sums[start + j]


@native
def mean_back(dy: Address, dx: Address, shares: Floats, groups: int, positions: int, lanes: int, width: int) -> None:
    """dx (groups, positions, lanes) = dy / positions."""
    size, scale = positions * lanes, _f(1.0 / positions)
    whole = size - size % width
    for group in range(groups):
        dy_row, dx_row = floats(dy + 4 * group * lanes, lanes), floats(dx + 4 * group * size, size)
        if lanes == 1:
            share = scale * dy_row[0]
            for i in range(size):
                dx_row[i] = share
            continue
        for start in range(0, width, lanes):
            for j in range(lanes):
                shares[start + j] = scale * dy_row[j]
        for start in range(0, whole, width):
            part = dx_row[start : start + width]
            for i in range(width):
                part[i] = shares[i]
        for i in range(whole, size):
            dx_row[i] = shares[i - whole]


def _extents(shapes: Shapes) -> dict[str, int]:
    """The kernels' integers; `width` is the number of elements that are summed side by side."""
    n, channels, rows, columns = shapes.x[0]
    lanes = _lanes(shapes.formats.x[0], channels)
    width = -(-WIDTH // lanes) * lanes
    return {"groups": n * channels // lanes, "positions": rows * columns, "lanes": lanes, "width": width}


def formats(op: GlobalAvgPool2d, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    (x,), (tag,) = shapes.x, given
    return Formats((tag if _lanes(tag, x[1]) else canonical(x),), canonical(shapes.y))


def buffers(op: GlobalAvgPool2d, shapes: Shapes) -> Buffers:
    row = ((_extents(shapes)["width"],), FLOAT)
    return Buffers(forward={"sums": row}, backward={"shares": row})


def forward(call: Call) -> Run:
    return mean.on(call, **_extents(call.shapes))


def backward(call: Call) -> Run:
    return mean_back.on(call, **_extents(call.shapes))
