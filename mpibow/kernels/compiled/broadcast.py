"""Sums and products of a tensor and a smaller one broadcast to it without a copy, in the tensor's layout.

The tensor is read in memory order. Two axes are joined where the smaller tensor advances on both or on neither; the
last two are an inner block.
"""

from math import prod

import numpy as np

from mpibow.graph import Call, Formats, Kernel, Op, Run, Shape, Shapes, Tags
from mpibow.graph.formats import canonical, parse, physical
from mpibow.ops.fused import ExpandAdd, ExpandMultiply

from .boxes import copied, joined, strides
from .command import together
from .native import Address, Arguments, Words, floats, native
from .reduce import loops, start_of

_f = np.float32


@native
def spread(
    s: Address,
    x: Address,
    y: Address,
    times: bool,
    blocks: int,
    rows: int,
    columns: int,
    row_step: int,
    column_step: int,
    axes: Words,
) -> None:
    """y = x s, or x + s. Steps and axes are those of s, as `reduce.total` has them; column_step is 0 or 1."""
    for block in range(blocks):
        first = 4 * block * rows * columns
        at = start_of(axes, block)
        for i in range(rows):
            here = first + 4 * i * columns
            small = s + 4 * (at + i * row_step)
            x_row = floats(x + here, columns)
            y_row = floats(y + here, columns)
            if column_step == 0:
                value = floats(small, 1)[0]
                for j in range(columns):
                    y_row[j] = x_row[j] * value if times else x_row[j] + value
            else:
                s_row = floats(small, columns)
                for j in range(columns):
                    y_row[j] = x_row[j] * s_row[j] if times else x_row[j] + s_row[j]


@native
def summed(
    dy: Address,
    ds: Address,
    n: int,
    blocks: int,
    rows: int,
    columns: int,
    row_step: int,
    column_step: int,
    axes: Words,
    x: Address = None,
) -> None:
    """ds (n,) = the sums of dy, or of dy x."""
    floats(ds, n)[:] = 0
    for block in range(blocks):
        first = 4 * block * rows * columns
        at = start_of(axes, block)
        for i in range(rows):
            here = first + 4 * i * columns
            small = ds + 4 * (at + i * row_step)
            dy_row = floats(dy + here, columns)
            x_row = floats((x if x else dy) + here, columns)
            if column_step == 0:
                total = _f(0)
                for j in range(columns):
                    total += dy_row[j] * x_row[j] if x else dy_row[j]
                floats(small, 1)[0] += total
            else:
                ds_row = floats(small, columns)
                for j in range(columns):
                    ds_row[j] += dy_row[j] * x_row[j] if x else dy_row[j]


def walked(tag: str, x: Shape, small: Shape) -> Arguments | None:
    """The arguments of `spread` from the blocks on, for x in the layout `tag`; None for a layout that does not fit."""
    outer, blocks = parse(tag)
    sizes = dict(blocks)
    steps = strides(np.broadcast_to(np.empty(small, _f), x))
    extents = physical(tag, x)
    if prod(extents) != prod(x) or len(sizes) < len(blocks):
        return None
    here = [steps[axis] * sizes.get(axis, 1) for axis in outer] + [steps[axis] for axis, _ in blocks]
    found = loops([axis[::2] for axis in joined(extents, strides(np.empty(extents, _f)), here)])  # extent, distance
    return found if found["column_step"] in (0, 1) else None


def formats(op: Op, shapes: Shapes, given: Tags) -> Formats:
    small, x = shapes.x
    tag = canonical(x) if walked(given[1], x, small) is None else given[1]
    return Formats((canonical(small), tag), tag)


def _walk(call: Call) -> Arguments:
    found = walked(call.shapes.formats.y, call.shapes.y, call.shapes.x[0])
    assert found is not None
    return found


def forward(call: Call) -> Run:
    s, x = call.x
    return spread.on(call, s=s, x=x, times=isinstance(call.op, ExpandMultiply), **_walk(call))


def backward(call: Call) -> Run:
    """The gradient by s, the sums of dy, or of dy x; and by x, dy, or dy s."""
    s, x = call.x
    ds, dx = call.dx
    dy = call.dy
    runs = []
    times = isinstance(call.op, ExpandMultiply)
    if ds is not None:
        runs.append(summed.command(dy=dy, x=x if times else None, ds=ds, n=ds.size, **_walk(call)))
    if dx is not None:
        runs.append(spread.command(s=s, x=dy, y=dx, times=True, **_walk(call)) if times else copied(dx, dy))
    return together(runs)


KERNELS = dict.fromkeys((ExpandAdd, ExpandMultiply), Kernel(forward, backward, formats=formats))
