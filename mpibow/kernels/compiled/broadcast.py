"""Sums and products of a tensor and a smaller one broadcast to it without a copy, in the tensor's layout.

The tensor is read in memory order. Two axes are joined where the smaller tensor advances on both or on neither; the
last two are an inner block.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from mpibow.graph.formats import canonical, parse, physical
from mpibow.graph.graph import Shape
from mpibow.graph.kernel import Call, Formats, Run, Shapes
from mpibow.kernels.compiled import reduce
from mpibow.kernels.compiled.boxes import copied, distances, joined
from mpibow.kernels.compiled.command import Command, command, floats, native_with, together, words
from mpibow.kernels.compiled.reduce import start_of
from mpibow.ops.fused import ExpandMultiply

_f = np.float32
native = native_with(reduce)


@native
def spread(arguments: int, _: int, count: int, __: int) -> int:
    """(s, x, y, whether a product, blocks, rows, columns, 2 distances, outer axes, extent and distance of each).

    The distances are of s, for rows and for columns, where it is 0 or 1.
    """
    a = words(arguments, count)
    rows, columns, row_step = a[5], a[6], a[7]
    for block in range(a[4]):
        first, at = 4 * block * rows * columns, start_of(a, 10, a[9], block)
        for i in range(rows):
            here, small = first + 4 * i * columns, a[0] + 4 * (at + i * row_step)
            x, y = floats(a[1] + here, columns), floats(a[2] + here, columns)
            if a[8] == 0:
                value = floats(small, 1)[0]
                if a[3]:
                    for j in range(columns):
                        y[j] = x[j] * value
                else:
                    for j in range(columns):
                        y[j] = x[j] + value
            else:
                s = floats(small, columns)
                if a[3]:
                    for j in range(columns):
                        y[j] = x[j] * s[j]
                else:
                    for j in range(columns):
                        y[j] = x[j] + s[j]
    return 0


@native
def summed(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, x or 0, ds, n, blocks, and the further arguments of `spread`): ds (n,) = the sums of dy, or of dy x."""
    a = words(arguments, count)
    rows, columns, row_step, whole = a[5], a[6], a[7], floats(a[2], a[3])
    for i in range(a[3]):
        whole[i] = _f(0)
    for block in range(a[4]):
        first, at = 4 * block * rows * columns, start_of(a, 10, a[9], block)
        for i in range(rows):
            here, small = first + 4 * i * columns, a[2] + 4 * (at + i * row_step)
            dy = floats(a[0] + here, columns)
            if a[8] == 0:
                total, ds = _f(0), floats(small, 1)
                if a[1]:
                    x = floats(a[1] + here, columns)
                    for j in range(columns):
                        total += dy[j] * x[j]
                else:
                    for j in range(columns):
                        total += dy[j]
                ds[0] += total
            else:
                ds = floats(small, columns)
                if a[1]:
                    x = floats(a[1] + here, columns)
                    for j in range(columns):
                        ds[j] += dy[j] * x[j]
                else:
                    for j in range(columns):
                        ds[j] += dy[j]
    return 0


def walked(tag: str, x: Shape, small: Shape) -> list[int] | None:
    """The arguments of `spread` from the blocks on, for x in the layout `tag`; None for a layout that does not fit."""
    outer, blocks = parse(tag)
    sizes = dict(blocks)
    whole = (1,) * (len(x) - len(small)) + small
    steps = [0 if extent == 1 else step for extent, step in zip(whole, distances(whole), strict=True)]
    extents = physical(tag, x)
    if prod(extents) != prod(x) or len(sizes) < len(blocks):
        return None
    here = [steps[axis] * sizes.get(axis, 1) for axis in outer] + [steps[axis] for axis, _ in blocks]
    axes = [axis[::2] for axis in joined(extents, distances(extents), here)]  # extent, distance in the small one
    axes = [(1, 0)] * (2 - len(axes)) + axes
    *before, (rows, row_step), (columns, column_step) = axes
    count = prod(extent for extent, _ in before)
    if column_step not in (0, 1):
        return None
    return [count, rows, columns, row_step, column_step, len(before), *(word for axis in before for word in axis)]


def formats(op: Any, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    small, x = shapes.x
    tag = canonical(x) if walked(given[1], x, small) is None else given[1]
    return Formats((canonical(small), tag), tag)


def _walk(call: Call) -> list[int]:
    found = walked(call.shapes.formats.y, call.shapes.y, call.shapes.x[0])
    assert found is not None
    return found


def forward(call: Call) -> Run:
    s, x = call.x
    return command(spread, s, x, call.y, int(isinstance(call.op, ExpandMultiply)), *_walk(call))


def _backward(gradient: Callable[[Call], Command], call: Call, x: Any) -> Run:
    """The gradient by s, the sums of dy, or of dy x; and by x, `gradient`."""
    (ds, dx), dy = call.dx, call.dy
    runs = [] if ds is None else [command(summed, dy, x, ds, ds.size, *_walk(call))]
    return together([*runs, *([] if dx is None else [gradient(call)])])


def add_backward(call: Call) -> Run:
    def copy(call: Call) -> Command:
        dx, dy = call.dx[1], call.dy.reshape(-1)
        assert dx is not None
        return copied(dy, dx.reshape(-1), dy.shape, (1,), (1,))

    return _backward(copy, call, 0)


def multiply_backward(call: Call) -> Run:
    def times(call: Call) -> Command:
        dx = call.dx[1]
        assert dx is not None
        return command(spread, call.x[0], call.dy, dx, 1, *_walk(call))

    return _backward(times, call, call.x[1])
