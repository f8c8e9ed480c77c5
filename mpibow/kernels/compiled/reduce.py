"""Sums, means and maxima over axes, and their gradients: a broadcast's gradient is a sum, a sum's is a broadcast.

The input is read in memory order. Axes are joined where both or neither are reduced; the last two are an inner block.
"""

from math import prod

import numpy as np

from mpibow.graph import FLOAT, Array, Buffers, Call, Kernel, Run
from mpibow.ops import KERNELS as REFERENCE, Expand, ReduceMax, ReduceMean, ReduceSum

from .boxes import half, joined, repeated, strides
from .command import Command, together
from .elementwise import scaled_copies
from .native import Address, Arguments, Single, Words, floats, integers, native, row_at
from .numeric import inlined, largest

_f = np.float32


@inlined
def start_of(axes: Array, block: int) -> int:
    """The first output of a block; axes are (extent, distance) one behind the other."""
    at = 0
    for axis in range(len(axes) // 2 - 1, -1, -1):
        extent = axes[2 * axis]
        at += (block % extent) * axes[2 * axis + 1]
        block //= extent
    return at


@native
def total(
    x: Address,
    y: Address,
    n: int,
    scale: Single,
    blocks: int,
    rows: int,
    columns: int,
    row_step: int,
    column_step: int,
    axes: Words,
) -> None:
    """y (n,) = scale times the sum of x's blocks (rows, columns); an axis with a distance of 0 is summed.

    axes are the extent and the distance of each outer axis.
    """
    whole = floats(y, n)
    whole[:] = 0
    for block in range(blocks):
        start = x + 4 * block * rows * columns
        at = start_of(axes, block)
        if column_step == 0:
            for i in range(rows):
                line = row_at(start, i, columns)
                y_row = row_at(y, at + i * row_step, 1)
                part = _f(0)
                for j in range(columns):
                    part += line[j]
                y_row[0] += part
        else:  # the column distance is 1, the rows are summed: four at once, so that y is read and written less
            y_row = floats(y + 4 * at, columns)
            for i in range(0, rows - 3, 4):
                x0 = row_at(start, i, columns)
                x1 = row_at(start, i + 1, columns)
                x2 = row_at(start, i + 2, columns)
                x3 = row_at(start, i + 3, columns)
                for j in range(columns):
                    y_row[j] += (x0[j] + x1[j]) + (x2[j] + x3[j])
            for i in range(rows // 4 * 4, rows):
                line = row_at(start, i, columns)
                for j in range(columns):
                    y_row[j] += line[j]
    if scale != _f(1):
        for i in range(n):
            whole[i] *= scale


@native
def peaks(
    x: Address, y: Address, n: int, blocks: int, rows: int, columns: int, row_step: int, column_step: int, axes: Words
) -> None:
    """Like `total`, but the largest instead of the sum, without a scale: NaN is above all."""
    floats(y, n)[:] = -np.inf
    for block in range(blocks):
        start = x + 4 * block * rows * columns
        at = start_of(axes, block)
        for i in range(rows):
            line = row_at(start, i, columns)
            if column_step == 0:
                y_row = row_at(y, at + i * row_step, 1)
                best = largest(integers(start + 4 * i * columns, columns))
                none = np.int32(0)
                for j in range(columns):
                    none |= np.int32(1) if line[j] != line[j] else np.int32(0)
                best = _f(np.nan) if none else best
                y_row[0] = best if (best > y_row[0]) | (best != best) else y_row[0]
            else:
                y_row = floats(y + 4 * at, columns)
                for j in range(columns):
                    y_row[j] = line[j] if (line[j] > y_row[j]) | (line[j] != line[j]) else y_row[j]


@native
def peaks_back(
    x: Address,
    y: Address,
    n: int,
    dy: Address,
    dx: Address,
    shares: Address,
    blocks: int,
    rows: int,
    columns: int,
    row_step: int,
    column_step: int,
    axes: Words,
) -> None:
    """Like `total`: dx = dy where x = y, shared by equals, else 0."""
    slope = floats(dy, n)
    share_of = floats(shares, n)
    share_of[:] = 0
    for block in range(blocks):
        start = 4 * block * rows * columns
        at = start_of(axes, block)
        for i in range(rows):
            x_row = row_at(x + start, i, columns)
            if column_step == 0:
                y_row = row_at(y, at + i * row_step, 1)
                own = row_at(shares, at + i * row_step, 1)
                equal = _f(0)
                best = y_row[0]
                for j in range(columns):
                    equal += _f(1) if x_row[j] == best else _f(0)
                own[0] += equal
            else:
                y_row = floats(y + 4 * at, columns)
                own = floats(shares + 4 * at, columns)
                for j in range(columns):
                    own[j] += _f(1) if x_row[j] == y_row[j] else _f(0)
    for i in range(n):
        share_of[i] = slope[i] / share_of[i]
    for block in range(blocks):
        start = 4 * block * rows * columns
        at = start_of(axes, block)
        for i in range(rows):
            x_row = row_at(x + start, i, columns)
            dx_row = row_at(dx + start, i, columns)
            if column_step == 0:
                y_row = row_at(y, at + i * row_step, 1)
                own = row_at(shares, at + i * row_step, 1)
                best = y_row[0]
                share = own[0]
                for j in range(columns):
                    dx_row[j] = share * (_f(1) if x_row[j] == best else _f(0))
            else:
                y_row = floats(y + 4 * at, columns)
                own = floats(shares + 4 * at, columns)
                for j in range(columns):
                    dx_row[j] = own[j] * (_f(1) if x_row[j] == y_row[j] else _f(0))


def walked(x: Array, y: Array) -> Arguments:
    """The arguments of `total` from the blocks on; an axis has x's extent in y, or 1, or is left out in front."""
    axes = joined(x.shape, strides(x), strides(np.broadcast_to(y, x.shape)))
    return loops([axis[::2] for axis in axes])  # extent, distance in y


def loops(axes: list[tuple[int, ...]]) -> Arguments:
    """A kernel's loops over axes (extent, distance): an inner block of two, and the outer ones."""
    *outer, (rows, row_step), (columns, column_step) = [(1, 0)] * (2 - len(axes)) + axes
    return {
        "blocks": prod(extent for extent, _ in outer),
        "rows": rows,
        "columns": columns,
        "row_step": row_step,
        "column_step": column_step,
        "axes": np.array(outer, np.int64),
    }


def _summed(x: Array, y: Array, scale: float) -> Command:
    return total.command(x=x, y=y, n=y.size, scale=scale, **walked(x, y))


def mean_backward(call: Call) -> Run:
    dx = call.dx0
    dy = call.dy
    share = call.scratch["share"]
    factor = np.array([dy.size / dx.size], np.float32)
    return together([scaled_copies.command(dy=dy, n=dy.size, outputs=[share], factors=factor), repeated(share, dx)])


def _peaks(call: Call) -> Arguments:
    return {"n": call.y.size, **walked(call.x0, call.y)}


KERNELS = {
    Expand: Kernel(
        half(lambda call: [(call.y, np.broadcast_to(call.x0, call.y.shape))], REFERENCE[Expand].forward),
        lambda call: _summed(call.dy, call.dx0, 1.0),
    ),
    ReduceMax: Kernel(
        peaks.half(_peaks), peaks_back.half(_peaks), lambda op, shapes: Buffers(backward={"shares": (shapes.y, FLOAT)})
    ),
    ReduceMean: Kernel(
        lambda call: _summed(call.x0, call.y, call.y.size / call.x0.size),
        mean_backward,
        lambda op, shapes: Buffers(backward={"share": (shapes.y, FLOAT)}),
    ),
    ReduceSum: Kernel(lambda call: _summed(call.x0, call.y, 1.0), lambda call: repeated(call.dy, call.dx0)),
}
