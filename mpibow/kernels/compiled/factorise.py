"""Matrix factorisation: products of rows of two tables, and their gradients scattered back."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.command import command, floats, native, words
from mpibow.kernels.compiled.numeric import index_at, wide
from mpibow.ops import MatrixFactorisation

_f = np.float32


@native
def squared_errors(arguments: int, _: int, count: int, __: int) -> int:
    """(users, items, ratings, user table, item table, y, error, n, factors, rows of both, whether wide of both)."""
    a = words(arguments, count)
    n, factors = a[7], a[8]
    ratings, y, errors = floats(a[2], n), floats(a[5], n), floats(a[6], n)
    for i in range(n):
        row = min(max(index_at(a[0], a[11], i), 0), a[9] - 1)  # a wrong index must not read elsewhere
        column = min(max(index_at(a[1], a[12], i), 0), a[10] - 1)
        p, q = floats(a[3] + 4 * row * factors, factors), floats(a[4] + 4 * column * factors, factors)
        total = _f(0)
        for j in range(factors):
            total += p[j] * q[j]
        errors[i] = total - ratings[i]
        y[i] = errors[i] * errors[i]
    return 0


@native
def scatter(arguments: int, _: int, count: int, __: int) -> int:
    """(users, items, dy, user table, item table, d user table, d item table, error, n, factors, rows of both, whether
    wide of both): 2 dy error, times the other's row."""
    a = words(arguments, count)
    n, factors = a[8], a[9]
    dy, errors = floats(a[2], n), floats(a[7], n)
    duser, ditem = floats(a[5], a[10] * factors), floats(a[6], a[11] * factors)
    for j in range(a[10] * factors):
        duser[j] = _f(0)
    for j in range(a[11] * factors):
        ditem[j] = _f(0)
    for i in range(n):
        row = min(max(index_at(a[0], a[12], i), 0), a[10] - 1)
        column = min(max(index_at(a[1], a[13], i), 0), a[11] - 1)
        p, q = floats(a[3] + 4 * row * factors, factors), floats(a[4] + 4 * column * factors, factors)
        dp, dq = floats(a[5] + 4 * row * factors, factors), floats(a[6] + 4 * column * factors, factors)
        slope = _f(2) * dy[i] * errors[i]
        for j in range(factors):
            dp[j] += slope * q[j]
            dq[j] += slope * p[j]
    return 0


def buffers(op: MatrixFactorisation, shapes: Shapes) -> Buffers:
    error = {"error": (shapes.y, FLOAT)}
    return Buffers(saved=error) if shapes.training else Buffers(forward=error)


def _sizes(op: MatrixFactorisation, indices: tuple[Array, ...]) -> tuple[int, ...]:
    return (len(indices[0]), op.factors, op.users, op.items, *map(wide, indices))


def forward(call: Call) -> Run:
    tables = call.w["user"], call.w["item"]
    return command(squared_errors, *call.x, *tables, call.y, call.buffer("error"), *_sizes(call.op, call.x[:2]))


def backward(call: Call) -> Run:
    arrays = *call.x[:2], call.dy, call.w["user"], call.w["item"], call.dw["user"], call.dw["item"]
    return command(scatter, *arrays, call.saved["error"], *_sizes(call.op, call.x[:2]))
