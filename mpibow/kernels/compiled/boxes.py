"""Boxes of elements copied from one place to another: permuted, cut out, put in, joined, repeated.

A box is its extents and, for either side, the distance of neighbours along each axis: a distance of 0 repeats an
element. Two of its axes are an inner block, the others are outer loops, any number of them.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
from llvmlite.ir import IRBuilder, Value

from mpibow.graph import Array, Binding, Call, Formats, Kernel, Run, Shapes, Tags, canonical_formats
from mpibow.graph.formats import canonical, parse
from mpibow.ops import KERNELS as REFERENCE, MOVES, Concat, PadChannels
from mpibow.ops.moves import Moves

from .command import Command, together
from .native import Address, Words, integers, native
from .vectors import I64, columns_of, emitted, first_lanes, load_some, splat, store_some

TILE = 16  # elements: rows and columns of a tile are a vector each
PARTS = (Concat, PadChannels)  # operators on any layout that does not cut their parts up


@emitted
def turn_part(b: IRBuilder, source: Value, target: Value, row: Value, step: Value, rows: Value, columns: Value) -> None:
    """target's lines, `step` bytes from each other, <- the columns of source's rows, `row` bytes from each other."""
    read = first_lanes(b, columns)
    written = first_lanes(b, rows)
    lines = []
    for i in range(TILE):
        there = b.icmp_signed("<", I64(i), rows)
        lines.append(load_some(b, read, b.add(source, b.select(there, b.mul(row, I64(i)), I64(0))), 0))
    for i, line in enumerate(columns_of(b, lines)):
        there = splat(b, b.icmp_signed("<", I64(i), columns))
        store_some(b, b.and_(written, there), line, b.add(target, b.mul(step, I64(i))), 0)


@native
def copy_box(
    source: Address,
    target: Address,
    rows: int,
    columns: int,
    source_row: int,
    target_row: int,
    source_column: int,
    target_column: int,
    axes: Words,
) -> None:
    """target <- source, 4 bytes an element. axes are the extent and both distances of each outer axis."""
    blocks = 1
    for axis in range(0, len(axes), 3):
        blocks *= axes[axis]
    for block in range(blocks):
        s = 0
        t = 0
        rest = block
        for axis in range(len(axes) - 3, -1, -3):
            extent = axes[axis]
            at = rest % extent
            rest //= extent
            s += at * axes[axis + 1]
            t += at * axes[axis + 2]
        if target_column == 1 and source_column == 1:
            for i in range(rows):
                x = integers(source + 4 * (s + i * source_row), columns)
                y = integers(target + 4 * (t + i * target_row), columns)
                for j in range(columns):
                    y[j] = x[j]
        elif target_column == 1 and source_column == 0:
            for i in range(rows):
                x = integers(source + 4 * (s + i * source_row), 1)
                y = integers(target + 4 * (t + i * target_row), columns)
                value = x[0]
                for j in range(columns):
                    y[j] = value
        else:
            for first in range(0, rows, TILE):
                for left in range(0, columns, TILE):
                    if source_row == 1 and target_column == 1:
                        there = source + 4 * (s + first + left * source_column)
                        here = target + 4 * (t + first * target_row + left)
                        turn_part(
                            there,
                            here,
                            4 * source_column,
                            4 * target_row,
                            min(TILE, columns - left),
                            min(TILE, rows - first),
                        )
                        continue
                    for i in range(first, min(first + TILE, rows)):
                        x = integers(source + 4 * (s + i * source_row), 1 << 40)
                        y = integers(target + 4 * (t + i * target_row), 1 << 40)
                        for j in range(left, min(left + TILE, columns)):
                            y[j * target_column] = x[j * source_column]


def joined(extents: Sequence[int], *distances: Sequence[int]) -> list[tuple[int, ...]]:
    """Axes (extent, distance ...) without those of one element; neighbours that walk on as one axis are one."""
    found = list[tuple[int, ...]]()
    for extent, *steps in zip(extents, *distances, strict=True):
        if extent == 1:
            continue
        if found and all(wide == extent * step for wide, step in zip(found[-1][1:], steps, strict=True)):
            found[-1] = (found[-1][0] * extent, *steps)
        else:
            found.append((extent, *steps))
    return found


def strides(array: Array) -> list[int]:
    """The distance of neighbours along each axis, in 4 bytes."""
    return [step // 4 for step in array.strides]


def copied(target: Array, source: Array) -> Command:
    """target <- source: views of one shape, of 4 or 8 bytes an element."""
    box = sorted(zip(target.shape, strides(source), strides(target), strict=True), key=lambda axis: -axis[2])
    if target.itemsize == 8:
        box.append((2, 1, 1))
    axes = joined(*zip(*box, strict=True)) if box else []
    axes = [(1, 0, 0)] * (2 - len(axes)) + axes
    columns, source_column, target_column = axes.pop() if axes[-1][0] != 1 else (1, 1, 1)
    near = [i for i, axis in enumerate(axes) if axis[1] == 1] if source_column > 1 else []
    rows, source_row, target_row = axes.pop(near[-1] if near else -1) if axes else (1, 0, 0)
    return copy_box.command(
        source=source,
        target=target,
        rows=rows,
        columns=columns,
        source_row=source_row,
        target_row=target_row,
        source_column=source_column,
        target_column=target_column,
        axes=np.array(axes, np.int64),
    )


def repeated(x: Array, y: Array) -> Command:
    """y <- x broadcast to it."""
    return copied(y, np.broadcast_to(x, y.shape))


def half(moves: Moves, reference: Binding | None) -> Binding:
    """The moves as boxes; where elements are of other sizes, the reference."""

    def bind(call: Call) -> Run:
        pairs = moves(call)
        if reference is None or all(target.itemsize in (4, 8) for target, _ in pairs):
            return together([copied(*pair) for pair in pairs])
        return reference(call)

    return bind


def kernel(op: type) -> Kernel:
    """The kernel of an operator of MOVES."""
    forward, backward = MOVES[op]
    reference = REFERENCE[op]
    back = None if backward is None else half(backward, reference.backward)
    return Kernel(half(forward, reference.forward), back, formats=formats if op in PARTS else canonical_formats)


def formats(op: Concat | PadChannels, shapes: Shapes, given: Tags) -> Formats:
    """The first input's layout, unless an input with others or zeros behind it would end inside a block."""
    axis, inputs = (op.axis, shapes.x[:-1]) if isinstance(op, Concat) else (1, shapes.x)
    block = prod(size for at, size in parse(given[0])[1] if at == axis)
    tag = canonical(shapes.y) if any(shape[axis] % block for shape in inputs) else given[0]
    return Formats((tag,) * len(given), tag)


KERNELS = {op: kernel(op) for op in MOVES}
