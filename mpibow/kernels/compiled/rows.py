"""Rows of a table and elements along an axis, taken by number, and their gradients scattered back."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.arguments import Address, Floats, Words
from mpibow.kernels.compiled.command import floats, native
from mpibow.kernels.compiled.numeric import index_at, wide
from mpibow.ops import KERNELS, Embedding, Gather
from mpibow.ops.choose import starts_of

_f = np.float32


@native
def take_rows(
    table: Address, numbers: Address, y: Address, kept: Words, rows: int, width: int, wide_numbers: bool
) -> None:
    """y[i] = table[numbers[i]], or the nearest row."""
    for i in range(len(kept)):
        row = min(max(index_at(numbers, wide_numbers, i), 0), rows - 1)
        kept[i] = row
        source, y_row = floats(table + 4 * row * width, width), floats(y + 4 * i * width, width)
        for j in range(width):
            y_row[j] = source[j]


@native
def add_rows(table: Address, kept: Words, dy: Address, rows: int, width: int) -> None:
    """table = 0, then table[kept[i]] += dy[i], in order."""
    whole = floats(table, rows * width)
    for j in range(rows * width):
        whole[j] = _f(0)
    for i in range(len(kept)):
        row, dy_row = floats(table + 4 * kept[i] * width, width), floats(dy + 4 * i * width, width)
        for j in range(width):
            row[j] += dy_row[j]


@native
def take(
    x: Address, numbers: Address, starts: Words, place: Words, y: Floats, step: int, last: int, wide_numbers: bool
) -> None:
    """y[i] = x[place[i]], place[i] = starts[i] + numbers[i] step."""
    for i in range(len(y)):
        place[i] = starts[i] + min(max(index_at(numbers, wide_numbers, i), 0), last) * step
        y[i] = floats(x + 4 * place[i], 1)[0]


@native
def add_at(dx: Floats, place: Words, dy: Floats) -> None:
    """dx = 0, then dx[place[i]] += dy[i], in order."""
    for j in range(len(dx)):
        dx[j] = _f(0)
    for i in range(len(dy)):
        dx[place[i]] += dy[i]


def _indices(array: Array) -> bool:
    return array.dtype in (np.int32, np.int64)


def embedding_forward(call: Call) -> Run:
    (x,), table, index = call.x, call.w["weight"], call.saved["index"]
    if not _indices(x):
        return KERNELS[Embedding].forward(call)
    sizes = {"rows": len(table), "width": table.shape[1]}
    return take_rows.on(call, table=table, numbers=x, kept=index, wide_numbers=wide(x), **sizes)


def embedding_backward(call: Call) -> Run:
    table, index = call.dw["weight"], call.saved["index"]
    return add_rows.on(call, table=table, kept=index, rows=len(table), width=table.shape[1])


def gather_buffers(op: Gather, shapes: Shapes) -> Buffers:
    place: dict[str, Spec] = {"place": (shapes.y, "int64")}
    return Buffers(saved=place)


def gather_forward(call: Call) -> Run:
    x, index = call.x
    if not _indices(index) or x.dtype != np.float32:
        return KERNELS[Gather].forward(call)
    starts, step = starts_of(call.op.axis, x.shape, index.shape)
    starts, last = np.ascontiguousarray(starts), x.shape[call.op.axis] - 1
    return take.on(call, numbers=index, starts=starts, step=step, last=last, wide_numbers=wide(index))


def gather_backward(call: Call) -> Run:
    return add_at.on(call)
