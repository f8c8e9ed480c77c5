"""Rows of tables and elements along an axis, taken by number or multiplied, and their gradients scattered back."""

import numpy as np

from mpibow.graph import FLOAT, Buffers, Call, Kernel, Run
from mpibow.ops import KERNELS as REFERENCE, Embedding, Gather, MatrixFactorisation
from mpibow.ops.gather import starts_of

from .native import Address, Arguments, Back, Floats, Indices, Words, are_indices, floats, native, row_at
from .numeric import index_at

_f = np.float32


@native
def take(
    x: Address, numbers: Indices, place: Words, y: Address, width: int, step: int, last: int, starts: Words = None
) -> None:
    """y[i] = x[place[i]], rows of `width` elements; place[i] = numbers[i] step, or the nearest, + starts[i] if any."""
    for i in range(len(place)):
        place[i] = min(max(index_at(numbers, i), 0), last) * step
        if len(starts):
            place[i] += starts[i]
        source = row_at(x, place[i], width)
        y_row = row_at(y, i, width)
        for j in range(width):
            y_row[j] = source[j]


@native
def add_at(dx: Floats, place: Words, dy: Address, width: int) -> None:
    """dx = 0, then dx[place[i]] += dy[i], rows of `width` elements, in order."""
    dx[:] = 0
    for i in range(len(place)):
        row = row_at(dx.ctypes.data, place[i], width)
        dy_row = row_at(dy, i, width)
        for j in range(width):
            row[j] += dy_row[j]


def embedding_forward(call: Call) -> Run:
    x = call.x0
    table = call.w["weight"]
    index = call.saved["index"]
    if not are_indices(x):
        return REFERENCE[Embedding].forward(call)
    return take.on(call, x=table, numbers=x, place=index, width=table.shape[1], step=1, last=len(table) - 1)


def embedding_backward(call: Call) -> Run:
    table = call.dw["weight"]
    return add_at.on(call, dx=table, place=call.saved["index"], width=table.shape[1])


def gather_forward(call: Call) -> Run:
    x, index = call.x
    if not are_indices(index) or x.dtype != np.float32:
        return REFERENCE[Gather].forward(call)
    starts, step = starts_of(call.op.axis, x.shape, index.shape)
    starts = np.ascontiguousarray(starts)
    last = x.shape[call.op.axis] - 1
    return take.on(call, numbers=index, starts=starts, width=1, step=step, last=last)


@native
def factorised(
    back: Back,
    users: Indices,
    items: Indices,
    x2: Floats,
    user: Address,
    item: Address,
    y: Floats,
    error: Floats,
    factors: int,
    rows: int,
    columns: int,
    duser: Address = None,
    ditem: Address = None,
) -> None:
    """error = the products of rows of both tables, less the ratings x2; y = their squares. Or, if `back`, of the
    gradient y those of the tables' rows: 2 y error, times the other's row."""
    n = len(y)
    if back:
        floats(duser, rows * factors)[:] = 0
        floats(ditem, columns * factors)[:] = 0
    for i in range(n):
        row = min(max(index_at(users, i), 0), rows - 1)  # a wrong index must not read elsewhere
        column = min(max(index_at(items, i), 0), columns - 1)
        p = row_at(user, row, factors)
        q = row_at(item, column, factors)
        if back:
            dp = row_at(duser, row, factors)
            dq = row_at(ditem, column, factors)
            slope = _f(2) * y[i] * error[i]
            for j in range(factors):
                dp[j] += slope * q[j]
                dq[j] += slope * p[j]
        else:
            total = _f(0)
            for j in range(factors):
                total += p[j] * q[j]
            error[i] = total - x2[i]
            y[i] = error[i] * error[i]


def _tables(call: Call) -> Arguments:
    op = call.op
    (users, items, *_) = call.x
    return {"users": users, "items": items, "rows": op.users, "columns": op.items}


KERNELS = {
    Embedding: Kernel(embedding_forward, embedding_backward, REFERENCE[Embedding].buffers),
    Gather: Kernel(gather_forward, add_at.half(lambda call: {"width": 1}), REFERENCE[Gather].buffers),
    MatrixFactorisation: Kernel(
        factorised.half(lambda call: {"back": False, **_tables(call)}),
        factorised.half(lambda call: {"back": True, "y": call.dy, **_tables(call)}),
        lambda op, shapes: Buffers(saved={"error": (shapes.y, FLOAT)}),
    ),
}
