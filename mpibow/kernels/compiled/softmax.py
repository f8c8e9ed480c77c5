"""Softmax and its logarithm along any axis: contiguous rows, else a strip of columns at a time."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.command import command, floats, integers, native, words
from mpibow.kernels.compiled.numeric import exp, largest, log, stepwise
from mpibow.ops import LogSoftmax

_f = np.float32
STRIP = 256  # columns: their largest and their sums stay in L1


@stepwise
def _left(x: Any, best: Any, drop: Any) -> Any:
    """x - best - drop, in this order: for large x, best + drop would be rounded to best."""
    return (x - best) - drop


@native
def rows(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, rows, classes, whether the logarithm)."""
    a = words(arguments, count)
    classes = a[3]
    for row in range(a[2]):
        at = 4 * row * classes
        x, y, best = floats(a[0] + at, classes), floats(a[1] + at, classes), largest(integers(a[0] + at, classes))
        total = _f(0)
        if a[4]:
            for j in range(classes):
                total += exp(x[j] - best)
            drop = log(total)
            for j in range(classes):
                y[j] = _left(x[j], best, drop)
        else:
            for j in range(classes):
                y[j] = exp(x[j] - best)
                total += y[j]
            share = _f(1) / total
            for j in range(classes):
                y[j] *= share
    return 0


@native
def rows_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, y, dx, rows, classes, whether the logarithm): dy - exp(y) sum(dy), or y (dy - sum(y dy))."""
    a = words(arguments, count)
    classes = a[4]
    for row in range(a[3]):
        at = 4 * row * classes
        dy, y, dx = floats(a[0] + at, classes), floats(a[1] + at, classes), floats(a[2] + at, classes)
        total = _f(0)
        if a[5]:
            for j in range(classes):
                total += dy[j]
            for j in range(classes):
                dx[j] = dy[j] - exp(y[j]) * total
        else:
            for j in range(classes):
                total += dy[j] * y[j]
            for j in range(classes):
                dx[j] = y[j] * (dy[j] - total)
    return 0


@native
def columns(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, best, total, blocks, classes, columns, whether the logarithm); best and total are (STRIP,)."""
    a = words(arguments, count)
    classes, wide = a[5], a[6]
    for block in range(a[4]):
        for left in range(0, wide, STRIP):
            n, at = min(STRIP, wide - left), 4 * (block * classes * wide + left)
            best, total = floats(a[2], n), floats(a[3], n)
            for j in range(n):
                best[j] = _f(-np.inf)
                total[j] = _f(0)
            for i in range(classes):
                x = floats(a[0] + at + 4 * i * wide, n)
                for j in range(n):
                    best[j] = x[j] if (x[j] > best[j]) | (x[j] != x[j]) else best[j]
            for i in range(classes):
                x, y = floats(a[0] + at + 4 * i * wide, n), floats(a[1] + at + 4 * i * wide, n)
                for j in range(n):
                    below = x[j] - best[j]
                    e = exp(below)
                    total[j] += e
                    y[j] = below if a[7] else e
            for j in range(n):
                total[j] = log(total[j]) if a[7] else _f(1) / total[j]
            for i in range(classes):
                y = floats(a[1] + at + 4 * i * wide, n)
                for j in range(n):
                    y[j] = y[j] - total[j] if a[7] else y[j] * total[j]
    return 0


@native
def columns_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, y, dx, total, blocks, classes, columns, whether the logarithm); total is (STRIP,)."""
    a = words(arguments, count)
    classes, wide = a[5], a[6]
    for block in range(a[4]):
        for left in range(0, wide, STRIP):
            n, at = min(STRIP, wide - left), 4 * (block * classes * wide + left)
            total = floats(a[3], n)
            for j in range(n):
                total[j] = _f(0)
            for i in range(classes):
                dy, y = floats(a[0] + at + 4 * i * wide, n), floats(a[1] + at + 4 * i * wide, n)
                for j in range(n):
                    total[j] += dy[j] if a[7] else dy[j] * y[j]
            for i in range(classes):
                dy, y = floats(a[0] + at + 4 * i * wide, n), floats(a[1] + at + 4 * i * wide, n)
                dx = floats(a[2] + at + 4 * i * wide, n)
                if a[7]:
                    for j in range(n):
                        dx[j] = dy[j] - exp(y[j]) * total[j]
                else:
                    for j in range(n):
                        dx[j] = y[j] * (dy[j] - total[j])
    return 0


def _extents(call: Call) -> tuple[int, int, int]:
    """Blocks, classes, columns."""
    shape, axis = call.shapes.y, call.op.axis
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def buffers(op: Any, shapes: Shapes) -> Buffers:
    strip = ((STRIP,), FLOAT)
    if prod(shapes.y[op.axis + 1 :]) == 1:
        return Buffers()
    return Buffers(forward={"best": strip, "total": strip}, backward={"total": strip})


def forward(call: Call) -> Run:
    (blocks, classes, wide), log_too = _extents(call), int(isinstance(call.op, LogSoftmax))
    if wide == 1:
        return command(rows, call.x[0], call.y, blocks, classes, log_too)
    best, total = call.scratch["best"], call.scratch["total"]
    return command(columns, call.x[0], call.y, best, total, blocks, classes, wide, log_too)


def backward(call: Call) -> Run:
    (blocks, classes, wide), log_too, (dx,) = _extents(call), int(isinstance(call.op, LogSoftmax)), call.dx
    assert dx is not None
    if wide == 1:
        return command(rows_back, call.dy, call.y, dx, blocks, classes, log_too)
    return command(columns_back, call.dy, call.y, dx, call.scratch["total"], blocks, classes, wide, log_too)
