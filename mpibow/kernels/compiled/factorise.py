"""Matrix factorisation: products of rows of two tables, and their gradients scattered back."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.arguments import Address, Floats
from mpibow.kernels.compiled.command import floats, native
from mpibow.kernels.compiled.numeric import index_at, wide
from mpibow.ops import MatrixFactorisation

_f = np.float32


@native
def squared_errors(
    users: Address, items: Address, ratings: Floats, user: Address, item: Address, y: Floats, error: Floats,
    factors: int, rows: int, columns: int, wide_users: bool, wide_items: bool,
) -> None:  # fmt: skip
    """error = the products of rows of both tables, less the ratings; y = their squares."""
    n = len(y)
    for i in range(n):
        row = min(max(index_at(users, wide_users, i), 0), rows - 1)  # a wrong index must not read elsewhere
        column = min(max(index_at(items, wide_items, i), 0), columns - 1)
        p, q = floats(user + 4 * row * factors, factors), floats(item + 4 * column * factors, factors)
        total = _f(0)
        for j in range(factors):
            total += p[j] * q[j]
        error[i] = total - ratings[i]
        y[i] = error[i] * error[i]


@native
def scatter(
    users: Address, items: Address, dy: Floats, user: Address, item: Address, duser: Address, ditem: Address,
    error: Floats, factors: int, rows: int, columns: int, wide_users: bool, wide_items: bool,
) -> None:  # fmt: skip
    """The gradients of the tables' rows: 2 dy error, times the other's row."""
    n = len(dy)
    floats(duser, rows * factors)[:] = 0
    floats(ditem, columns * factors)[:] = 0
    for i in range(n):
        row = min(max(index_at(users, wide_users, i), 0), rows - 1)
        column = min(max(index_at(items, wide_items, i), 0), columns - 1)
        p, q = floats(user + 4 * row * factors, factors), floats(item + 4 * column * factors, factors)
        dp, dq = floats(duser + 4 * row * factors, factors), floats(ditem + 4 * column * factors, factors)
        slope = _f(2) * dy[i] * error[i]
        for j in range(factors):
            dp[j] += slope * q[j]
            dq[j] += slope * p[j]


def buffers(op: MatrixFactorisation, shapes: Shapes) -> Buffers:
    error = {"error": (shapes.y, FLOAT)}
    return Buffers(saved=error)


def _extents(call: Call) -> dict[str, Any]:
    op, (users, items, *_) = call.op, call.x
    return {
        "users": users, "items": items, "factors": op.factors, "rows": op.users, "columns": op.items,
        "wide_users": wide(users), "wide_items": wide(items),
    }  # fmt: skip


def forward(call: Call) -> Run:
    return squared_errors.on(call, ratings=call.x[2], **_extents(call))


def backward(call: Call) -> Run:
    return scatter.on(call, **_extents(call))
