"""Boxes of elements copied from one place to another: permuted, cut out, put in, repeated.

A box is its extents and, for either side, the distance of neighbours along each axis: a distance of 0 repeats an
element. Two of its axes are an inner block, the others are outer loops, any number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numba.extending import intrinsic

from mpibow.graph.graph import Array, Shape
from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.arguments import Address, Floats, Words
from mpibow.kernels.compiled.command import Command, integers, native, together
from mpibow.kernels.compiled.vectors import (
    I64,
    columns_of,
    emit,
    first_lanes,
    load_some,
    splat,
    store_some,
)
from mpibow.ops import KERNELS, Expand, Full, Permute, Slice, Split, Table

TILE = 16  # elements: rows and columns of a tile are a vector each
Axis = tuple[int, int, int]  # extent, and the distances in the source and in the target


@intrinsic
def turn(typing: Any, source: Any, target: Any, row: Any, step: Any, rows: Any, columns: Any) -> Any:
    """target's lines, `step` bytes from each other, <- the columns of source's rows, `row` bytes from each other."""

    def generate(b: Any, source: Any, target: Any, row: Any, step: Any, rows: Any, columns: Any) -> None:
        read, written, lines = first_lanes(b, columns), first_lanes(b, rows), list[Any]()
        for i in range(TILE):
            there = b.icmp_signed("<", I64(i), rows)
            lines.append(load_some(b, read, b.add(source, b.select(there, b.mul(row, I64(i)), I64(0))), 0))
        for i, line in enumerate(columns_of(b, lines)):
            there = splat(b, b.icmp_signed("<", I64(i), columns))
            store_some(b, b.and_(written, there), line, b.add(target, b.mul(step, I64(i))), 0)

    return emit(6, generate)


@native
def copy_box(
    source: Address, target: Address, rows: int, columns: int, source_row: int, target_row: int, source_column: int,
    target_column: int, axes: Words,
) -> None:  # fmt: skip
    """target <- source, 4 bytes an element. axes are the extent and both distances of each outer axis."""
    sr, tr, sc, tc = source_row, target_row, source_column, target_column
    blocks = 1
    for axis in range(0, len(axes), 3):
        blocks *= axes[axis]
    for block in range(blocks):
        s, t, rest = 0, 0, block
        for axis in range(len(axes) - 3, -1, -3):
            extent = axes[axis]
            at = rest % extent
            rest //= extent
            s += at * axes[axis + 1]
            t += at * axes[axis + 2]
        if tc == 1 and sc == 1:
            for i in range(rows):
                x, y = integers(source + 4 * (s + i * sr), columns), integers(target + 4 * (t + i * tr), columns)
                for j in range(columns):
                    y[j] = x[j]
        elif tc == 1 and sc == 0:
            for i in range(rows):
                x, y = integers(source + 4 * (s + i * sr), 1), integers(target + 4 * (t + i * tr), columns)
                value = x[0]
                for j in range(columns):
                    y[j] = value
        else:
            for first in range(0, rows, TILE):
                for left in range(0, columns, TILE):
                    if sr == 1 and tc == 1:
                        there, here = source + 4 * (s + first + left * sc), target + 4 * (t + first * tr + left)
                        turn(there, here, 4 * sc, 4 * tr, min(TILE, columns - left), min(TILE, rows - first))
                        continue
                    for i in range(first, min(first + TILE, rows)):
                        x = integers(source + 4 * (s + i * sr), 1 << 40)
                        y = integers(target + 4 * (t + i * tr), 1 << 40)
                        for j in range(left, min(left + TILE, columns)):
                            y[j * tc] = x[j * sc]


@native
def zero(target: Floats) -> None:
    for i in range(len(target)):
        target[i] = 0


def joined(extents: Sequence[int], *distances: Sequence[int]) -> list[tuple[int, ...]]:
    """Axes (extent, distance ...) without those of one element; neighbours that walk on as one axis are one."""
    found: list[tuple[int, ...]] = []
    for extent, *steps in zip(extents, *distances, strict=True):
        if extent == 1:
            continue
        if found and all(wide == extent * step for wide, step in zip(found[-1][1:], steps, strict=True)):
            found[-1] = (found[-1][0] * extent, *steps)
        else:
            found.append((extent, *steps))
    return found


def distances(shape: Shape) -> list[int]:
    """The distance of neighbours along each axis of an array that lies row by row."""
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def copied(source: Array, target: Array, extents: Sequence[int], there: Sequence[int], here: Sequence[int]) -> Command:
    """target <- source, of 4 or 8 bytes an element: a box whose neighbours are `there` apart in source, `here` in
    target, in elements."""
    wide = target.dtype.itemsize // 4
    box = [(n, wide * s, wide * t) for n, s, t in zip(extents, there, here, strict=True)]
    box = sorted(box, key=lambda axis: -axis[2])
    if wide == 2:
        box.append((2, 1, 1))
    axes: list[Any] = joined(*zip(*box, strict=True)) if box else []
    axes = [(1, 0, 0)] * (2 - len(axes)) + axes if len(axes) < 2 else axes
    columns = axes.pop() if axes[-1][0] != 1 else (1, 1, 1)
    near = [i for i, axis in enumerate(axes) if axis[1] == 1] if columns[1] > 1 else []
    rows = axes.pop(near[-1] if near else -1) if axes else (1, 0, 0)
    return copy_box.command(
        source=source, target=target, rows=rows[0], columns=columns[0], source_row=rows[1], target_row=rows[2],
        source_column=columns[1], target_column=columns[2], axes=np.array(axes, np.int64),
    )  # fmt: skip


def _fits(*arrays: Array) -> bool:
    return all(array.dtype.itemsize in (4, 8) for array in arrays)


def _permuted(source: Array, target: Array, axes: Sequence[int]) -> Command:
    """target's axis i is source's axes[i]."""
    there = distances(source.shape)
    return copied(source, target, target.shape, [there[axis] for axis in axes], distances(target.shape))


def permute_forward(call: Call) -> Run:
    if not _fits(call.y):
        return KERNELS[Permute].forward(call)
    return _permuted(call.x[0], call.y, call.op.axes)


def permute_backward(call: Call) -> Run:
    (dx,) = call.dx
    assert dx is not None
    return _permuted(call.dy, dx, np.argsort(call.op.axes).tolist())


def _cut(ranges: Sequence[tuple[int, int, int]], shape: Shape) -> tuple[int, list[int]]:
    """The first element of the part that `ranges` cut out of an array (shape), and its distances."""
    steps = distances(shape)
    first = sum(start * step for (start, _, _), step in zip(ranges, steps, strict=True))
    return first, [step * each[2] for step, each in zip(steps, ranges, strict=True)]


def slice_forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    if not _fits(y):
        return KERNELS[Slice].forward(call)
    first, there = _cut(call.op.ranges, x.shape)
    return copied(x.reshape(-1)[first:], y, y.shape, there, distances(y.shape))


def slice_backward(call: Call) -> Run:
    (dx,), dy = call.dx, call.dy
    assert dx is not None
    first, here = _cut(call.op.ranges, dx.shape)
    put = copied(dy, dx.reshape(-1)[first:], dy.shape, distances(dy.shape), here)
    return together([zero.command(target=dx), put])


def _parts(call: Call, whole: Array) -> list[Array]:
    """The views of `whole` that begin at each part of a split."""
    step = prod(whole.shape[call.op.axis + 1 :])
    return [whole.reshape(-1)[start * step :] for start in np.cumsum([0, *call.op.sizes[:-1]]).tolist()]


def split_forward(call: Call) -> Run:
    x, ys = call.x[0], call.ys or (call.y,)
    if not _fits(x):
        return KERNELS[Split].forward(call)
    parts = zip(_parts(call, x), ys, strict=True)
    return together([copied(part, y, y.shape, distances(x.shape), distances(y.shape)) for part, y in parts])


def split_backward(call: Call) -> Run:
    (dx,), dys = call.dx, call.dys or (call.dy,)
    assert dx is not None
    parts = zip(_parts(call, dx), dys, strict=True)
    return together([copied(dy, part, dy.shape, distances(dy.shape), distances(dx.shape)) for part, dy in parts])


def repeated(x: Array, y: Array) -> Command:
    """y <- x broadcast to it."""
    shape = (1,) * (y.ndim - x.ndim) + x.shape
    there = [0 if extent == 1 else step for extent, step in zip(shape, distances(shape), strict=True)]
    return copied(x, y, y.shape, there, distances(y.shape))


def expand_forward(call: Call) -> Run:
    return repeated(call.x[0], call.y) if _fits(call.y) else KERNELS[Expand].forward(call)


def full_forward(call: Call) -> Run:
    return _filled(call, np.array(call.op.value)) or KERNELS[Full].forward(call)


def table_forward(call: Call) -> Run:
    return _filled(call, np.array(call.op.values).reshape(call.op.shape)) or KERNELS[Table].forward(call)


def _filled(call: Call, values: Array) -> Command | None:
    return repeated(values.astype(call.y.dtype), call.y) if _fits(call.y) else None


def parameter_backward(call: Call) -> Run:
    dy, dw = call.dy.reshape(-1), call.dw["weight"].reshape(-1)
    return copied(dy, dw, dw.shape, (1,), (1,))
