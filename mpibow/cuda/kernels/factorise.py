"""Launches of matrix factorisation; tables, ratings and errors are float32 in every precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.cuda.kernels.elementwise import fill
from mpibow.cuda.kernels.kernels import Launch, instance, integer, warps
from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Shapes


def buffers(op: Any, shapes: Shapes) -> Buffers:
    return Buffers(saved={"error": (shapes.y, "float32")})


def _stride(table: Array) -> tuple[int, np.int64]:
    """Replicas of a table ([replicas,] rows, factors), and elements from one to the next."""
    return (1, np.int64(0)) if table.ndim == 2 else (len(table), np.int64(table.strides[0] // table.itemsize))


def forward(call: Call) -> list[Launch]:
    (user, item, rating), (users, items) = call.x, (call.w["user"], call.w["item"])
    replicas, stride = _stride(users)
    n = call.y.size
    extents = n // replicas, call.op.factors, call.op.users, call.op.items
    arguments = (user, item, rating, users, items, call.y, call.saved["error"], *extents, stride, n)
    return [Launch(instance("squared_errors", integer(user), integer(item)), warps(n), arguments)]


def backward(call: Call) -> list[Launch]:
    (user, item, _), op = call.x, call.op
    one = _gathered(call, (user, op.users), (item, op.items), call.w["item"], call.dw["user"])
    return [*one, *_gathered(call, (item, op.items), (user, op.users), call.w["user"], call.dw["item"])]


def _gathered(
    call: Call, mine: tuple[Array, int], theirs: tuple[Array, int], table: Array, gradient: Array
) -> list[Launch]:  # fmt: skip
    (index, rows), (other, other_rows) = mine, theirs
    replicas, stride = _stride(table)
    n = call.dy.size
    extents = n // replicas, call.op.factors, rows, other_rows
    arguments = (call.dy, call.saved["error"], index, other, table, gradient, *extents, stride, n)
    launch = Launch(instance("gathered", integer(index), integer(other)), warps(n), arguments)
    zeroed = [fill(one, 0.0) for one in (gradient if gradient.ndim == 3 else [gradient])]
    return [*zeroed, launch]
