"""Rows of tables and elements along an axis, taken by number or multiplied, and their gradients scattered back."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
from mpibow.kernels.compiled.native import Address, Argument, Floats, Words, floats, native, row_at
from mpibow.kernels.compiled.numeric import index_at, wide
from mpibow.ops import KERNELS as REFERENCE
from mpibow.ops import Embedding, Gather, MatrixFactorisation
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
        source, y_row = row_at(table, row, width), row_at(y, i, width)
        for j in range(width):
            y_row[j] = source[j]


@native
def add_rows(table: Address, kept: Words, dy: Address, rows: int, width: int) -> None:
    """table = 0, then table[kept[i]] += dy[i], in order."""
    whole = floats(table, rows * width)
    for j in range(rows * width):
        whole[j] = _f(0)
    for i in range(len(kept)):
        row, dy_row = floats(table + 4 * kept[i] * width, width), row_at(dy, i, width)
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
        return REFERENCE[Embedding].forward(call)
    sizes = {"rows": len(table), "width": table.shape[1]}
    return take_rows.on(call, table=table, numbers=x, kept=index, wide_numbers=wide(x), **sizes)


def embedding_backward(call: Call) -> Run:
    table, index = call.dw["weight"], call.saved["index"]
    return add_rows.on(call, table=table, kept=index, rows=len(table), width=table.shape[1])


def gather_buffers(op: Gather, shapes: Shapes) -> Buffers:
    return Buffers(saved={"place": (shapes.y, "int64")})


def gather_forward(call: Call) -> Run:
    x, index = call.x
    if not _indices(index) or x.dtype != np.float32:
        return REFERENCE[Gather].forward(call)
    starts, step = starts_of(call.op.axis, x.shape, index.shape)
    starts, last = np.ascontiguousarray(starts), x.shape[call.op.axis] - 1
    return take.on(call, numbers=index, starts=starts, step=step, last=last, wide_numbers=wide(index))


@native
def squared_errors(
    users: Address,
    items: Address,
    x2: Floats,
    user: Address,
    item: Address,
    y: Floats,
    error: Floats,
    factors: int,
    rows: int,
    columns: int,
    wide_users: bool,
    wide_items: bool,
) -> None:
    """error = the products of rows of both tables, less the ratings x2; y = their squares."""
    n = len(y)
    for i in range(n):
        row = min(max(index_at(users, wide_users, i), 0), rows - 1)  # a wrong index must not read elsewhere
        column = min(max(index_at(items, wide_items, i), 0), columns - 1)
        p, q = row_at(user, row, factors), row_at(item, column, factors)
        total = _f(0)
        for j in range(factors):
            total += p[j] * q[j]
        error[i] = total - x2[i]
        y[i] = error[i] * error[i]


@native
def scatter(
    users: Address,
    items: Address,
    dy: Floats,
    user: Address,
    item: Address,
    duser: Address,
    ditem: Address,
    error: Floats,
    factors: int,
    rows: int,
    columns: int,
    wide_users: bool,
    wide_items: bool,
) -> None:
    """The gradients of the tables' rows: 2 dy error, times the other's row."""
    n = len(dy)
    floats(duser, rows * factors)[:] = 0
    floats(ditem, columns * factors)[:] = 0
    for i in range(n):
        row = min(max(index_at(users, wide_users, i), 0), rows - 1)
        column = min(max(index_at(items, wide_items, i), 0), columns - 1)
        p, q = row_at(user, row, factors), row_at(item, column, factors)
        dp, dq = row_at(duser, row, factors), row_at(ditem, column, factors)
        slope = _f(2) * dy[i] * error[i]
        for j in range(factors):
            dp[j] += slope * q[j]
            dq[j] += slope * p[j]


def factorisation_buffers(op: MatrixFactorisation, shapes: Shapes) -> Buffers:
    return Buffers(saved={"error": (shapes.y, FLOAT)})


def _extents(call: Call) -> dict[str, Argument]:
    op, (users, items, *_) = call.op, call.x
    return {
        "users": users,
        "items": items,
        "rows": op.users,
        "columns": op.items,
        "wide_users": wide(users),
        "wide_items": wide(items),
    }


KERNELS = {
    Embedding: Kernel(embedding_forward, embedding_backward, REFERENCE[Embedding].buffers),
    Gather: Kernel(gather_forward, add_at.half(), gather_buffers),
    MatrixFactorisation: Kernel(squared_errors.half(_extents), scatter.half(_extents), factorisation_buffers),
}
