"""Sums, means and maxima over axes, and their gradients: a broadcast's gradient is a sum, a sum's is a broadcast.

The input is read in memory order. Axes are joined where both or neither are reduced; the last two are an inner block.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.boxes import distances, joined, repeated
from mpibow.kernels.compiled.command import Command, command, floats, integers, native, number, together, words
from mpibow.kernels.compiled.numeric import inlined, largest

_f = np.float32


@inlined
def start_of(a: Any, first: Any, axes: Any, block: Any) -> Any:
    """The first output of a block; axes (extent, distance) begin at word `first`."""
    at = 0
    for axis in range(axes - 1, -1, -1):
        extent = a[first + 2 * axis]
        at += (block % extent) * a[first + 1 + 2 * axis]
        block //= extent
    return at


@native
def total(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, n, scale, blocks, rows, columns, row distance, column distance, outer axes, extent and distance of each).

    y (n,) = scale times the sum of x's blocks (rows, columns); an axis with a distance of 0 is summed.
    """
    a = words(arguments, count)
    n, rows, columns, row_step = a[2], a[5], a[6], a[7]
    whole = floats(a[1], n)
    for i in range(n):
        whole[i] = _f(0)
    for block in range(a[4]):
        x, at = a[0] + 4 * block * rows * columns, start_of(a, 10, a[9], block)
        if a[8] == 0:
            for i in range(rows):
                line, y = floats(x + 4 * i * columns, columns), floats(a[1] + 4 * (at + i * row_step), 1)
                part = _f(0)
                for j in range(columns):
                    part += line[j]
                y[0] += part
        else:  # the column distance is 1, the rows are summed: four at once, so that y is read and written less
            y = floats(a[1] + 4 * at, columns)
            for i in range(0, rows - 3, 4):
                x0, x1 = floats(x + 4 * i * columns, columns), floats(x + 4 * (i + 1) * columns, columns)
                x2, x3 = floats(x + 4 * (i + 2) * columns, columns), floats(x + 4 * (i + 3) * columns, columns)
                for j in range(columns):
                    y[j] += (x0[j] + x1[j]) + (x2[j] + x3[j])
            for i in range(rows // 4 * 4, rows):
                line = floats(x + 4 * i * columns, columns)
                for j in range(columns):
                    y[j] += line[j]
    scale = _f(number(a[3]))
    if scale != _f(1):
        for i in range(n):
            whole[i] *= scale
    return 0


@native
def peaks(arguments: int, _: int, count: int, __: int) -> int:
    """Like `total`, but the largest instead of the sum, without a scale: NaN is above all."""
    a = words(arguments, count)
    n, rows, columns, row_step = a[2], a[5], a[6], a[7]
    whole = floats(a[1], n)
    for i in range(n):
        whole[i] = _f(-np.inf)
    for block in range(a[4]):
        x, at = a[0] + 4 * block * rows * columns, start_of(a, 10, a[9], block)
        for i in range(rows):
            line = floats(x + 4 * i * columns, columns)
            if a[8] == 0:
                y = floats(a[1] + 4 * (at + i * row_step), 1)
                best, none = largest(integers(x + 4 * i * columns, columns)), np.int32(0)
                for j in range(columns):
                    none |= np.int32(1) if line[j] != line[j] else np.int32(0)
                best = _f(np.nan) if none else best
                y[0] = best if (best > y[0]) | (best != best) else y[0]
            else:
                y = floats(a[1] + 4 * at, columns)
                for j in range(columns):
                    y[j] = line[j] if (line[j] > y[j]) | (line[j] != line[j]) else y[j]
    return 0


@native
def peaks_back(arguments: int, _: int, count: int, __: int) -> int:
    """Like `total` with (x, y, n, dy, dx, shares (n,), blocks, ...): dx = dy where x = y, shared by equals, else 0."""
    a = words(arguments, count)
    n, rows, columns, row_step = a[2], a[7], a[8], a[9]
    dy, shares = floats(a[3], n), floats(a[5], n)
    for i in range(n):
        shares[i] = _f(0)
    for block in range(a[6]):
        start, at = 4 * block * rows * columns, start_of(a, 12, a[11], block)
        for i in range(rows):
            x = floats(a[0] + start + 4 * i * columns, columns)
            if a[10] == 0:
                y, own = floats(a[1] + 4 * (at + i * row_step), 1), floats(a[5] + 4 * (at + i * row_step), 1)
                equal, best = _f(0), y[0]
                for j in range(columns):
                    equal += _f(1) if x[j] == best else _f(0)
                own[0] += equal
            else:
                y, own = floats(a[1] + 4 * at, columns), floats(a[5] + 4 * at, columns)
                for j in range(columns):
                    own[j] += _f(1) if x[j] == y[j] else _f(0)
    for i in range(n):
        shares[i] = dy[i] / shares[i]
    for block in range(a[6]):
        start, at = 4 * block * rows * columns, start_of(a, 12, a[11], block)
        for i in range(rows):
            x, dx = floats(a[0] + start + 4 * i * columns, columns), floats(a[4] + start + 4 * i * columns, columns)
            if a[10] == 0:
                y, own = floats(a[1] + 4 * (at + i * row_step), 1), floats(a[5] + 4 * (at + i * row_step), 1)
                best, share = y[0], own[0]
                for j in range(columns):
                    dx[j] = share * (_f(1) if x[j] == best else _f(0))
            else:
                y, own = floats(a[1] + 4 * at, columns), floats(a[5] + 4 * at, columns)
                for j in range(columns):
                    dx[j] = own[j] * (_f(1) if x[j] == y[j] else _f(0))
    return 0


@native
def scaled(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, n, scale)."""
    a = words(arguments, count)
    x, y, scale = floats(a[0], a[2]), floats(a[1], a[2]), _f(number(a[3]))
    for i in range(a[2]):
        y[i] = scale * x[i]
    return 0


def walked(x: tuple[int, ...], y: tuple[int, ...]) -> list[int]:
    """The arguments of `total` from the blocks on, for shapes x and y; an axis has x's extent in y, or 1."""
    here = [0 if extent == 1 else step for extent, step in zip(y, distances(y), strict=True)]
    axes = [axis[::2] for axis in joined(x, distances(x), here)]  # extent, distance in y
    axes = [(1, 0)] * (2 - len(axes)) + axes
    *outer, (rows, row_step), (columns, column_step) = axes
    blocks = prod(extent for extent, _ in outer)
    return [blocks, rows, columns, row_step, column_step, len(outer), *(word for axis in outer for word in axis)]


def _summed(x: Array, y: Array, scale: float) -> Command:
    shape = (1,) * (x.ndim - y.ndim) + y.shape
    return command(total, x, y, y.size, scale, *walked(x.shape, shape))


def expand_backward(call: Call) -> Run:
    (dx,) = call.dx
    assert dx is not None
    return _summed(call.dy, dx, 1.0)


def sum_forward(call: Call) -> Run:
    return _summed(call.x[0], call.y, 1.0)


def sum_backward(call: Call) -> Run:
    (dx,) = call.dx
    assert dx is not None
    return repeated(call.dy, dx)


def mean_buffers(op: Any, shapes: Shapes) -> Buffers:
    return Buffers(backward={"share": (shapes.y, FLOAT)})


def mean_forward(call: Call) -> Run:
    return _summed(call.x[0], call.y, call.y.size / call.x[0].size)


def mean_backward(call: Call) -> Run:
    (dx,), dy, share = call.dx, call.dy, call.scratch["share"]
    assert dx is not None
    return together([command(scaled, dy, share, dy.size, dy.size / dx.size), repeated(share, dx)])


def max_buffers(op: Any, shapes: Shapes) -> Buffers:
    return Buffers(backward={"shares": (shapes.y, FLOAT)})


def max_forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    return command(peaks, x, y, y.size, 1.0, *walked(x.shape, y.shape))


def max_backward(call: Call) -> Run:
    x, y, (dx,) = call.x[0], call.y, call.dx
    assert dx is not None
    return command(peaks_back, x, y, y.size, call.dy, dx, call.scratch["shares"], *walked(x.shape, y.shape))
