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
    users: Address,
    items: Address,
    ratings: Floats,
    user_table: Address,
    item_table: Address,
    y: Floats,
    errors: Floats,
    factors: int,
    rows: int,
    columns: int,
    wide_users: bool,
    wide_items: bool,
) -> None:
    """errors = the products of rows of both tables, less the ratings; y = their squares."""
    n = len(y)
    for i in range(n):
        row = min(max(index_at(users, wide_users, i), 0), rows - 1)  # a wrong index must not read elsewhere
        column = min(max(index_at(items, wide_items, i), 0), columns - 1)
        p, q = floats(user_table + 4 * row * factors, factors), floats(item_table + 4 * column * factors, factors)
        total = _f(0)
        for j in range(factors):
            total += p[j] * q[j]
        errors[i] = total - ratings[i]
        y[i] = errors[i] * errors[i]


@native
def scatter(
    users: Address,
    items: Address,
    dy: Floats,
    user_table: Address,
    item_table: Address,
    duser_table: Address,
    ditem_table: Address,
    errors: Floats,
    factors: int,
    rows: int,
    columns: int,
    wide_users: bool,
    wide_items: bool,
) -> None:
    """The gradients of the tables' rows: 2 dy error, times the other's row."""
    n = len(dy)
    duser, ditem = floats(duser_table, rows * factors), floats(ditem_table, columns * factors)
    for j in range(rows * factors):
        duser[j] = _f(0)
    for j in range(columns * factors):
        ditem[j] = _f(0)
    for i in range(n):
        row = min(max(index_at(users, wide_users, i), 0), rows - 1)
        column = min(max(index_at(items, wide_items, i), 0), columns - 1)
        p, q = floats(user_table + 4 * row * factors, factors), floats(item_table + 4 * column * factors, factors)
        dp, dq = floats(duser_table + 4 * row * factors, factors), floats(ditem_table + 4 * column * factors, factors)
        slope = _f(2) * dy[i] * errors[i]
        for j in range(factors):
            dp[j] += slope * q[j]
            dq[j] += slope * p[j]


def buffers(op: MatrixFactorisation, shapes: Shapes) -> Buffers:
    error = {"error": (shapes.y, FLOAT)}
    return Buffers(saved=error)


def _arguments(call: Call) -> dict[str, Any]:
    op, (users, items, *_) = call.op, call.x
    return {
        "users": users, "items": items, "user_table": call.w["user"], "item_table": call.w["item"],
        "factors": op.factors, "rows": op.users, "columns": op.items, "wide_users": wide(users),
        "wide_items": wide(items),
    }  # fmt: skip


def forward(call: Call) -> Run:
    return squared_errors.command(ratings=call.x[2], y=call.y, errors=call.saved["error"], **_arguments(call))


def backward(call: Call) -> Run:
    dw, errors = call.dw, call.saved["error"]
    return scatter.command(
        dy=call.dy, errors=errors, duser_table=dw["user"], ditem_table=dw["item"], **_arguments(call)
    )
