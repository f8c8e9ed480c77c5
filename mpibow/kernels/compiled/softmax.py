"""Softmax and its logarithm along any axis: contiguous rows, else a strip of columns at a time."""

from math import prod

import numpy as np

from mpibow.graph import FLOAT, Buffers, Call, Kernel, Run, Shapes
from mpibow.ops import LogSoftmax, Softmax

from .native import Address, Floats, floats, integers, native
from .numeric import exp, largest, log, stepwise

_f = np.float32
STRIP = 256  # columns: their largest and their sums stay in L1


@stepwise
def _left(x: np.float32, best: np.float32, drop: np.float32) -> np.float32:
    """x - best - drop, in this order: for large x, best + drop would be rounded to best."""
    return (x - best) - drop


@native
def rows(x: Address, y: Address, blocks: int, classes: int, logarithm: bool) -> None:
    """Of rows (blocks, classes)."""
    for row in range(blocks):
        at = 4 * row * classes
        x_row = floats(x + at, classes)
        y_row = floats(y + at, classes)
        best = largest(integers(x + at, classes))
        total = _f(0)
        if logarithm:
            for j in range(classes):
                total += exp(x_row[j] - best)
            drop = log(total)
            for j in range(classes):
                y_row[j] = _left(x_row[j], best, drop)
        else:
            for j in range(classes):
                y_row[j] = exp(x_row[j] - best)
                total += y_row[j]
            share = _f(1) / total
            for j in range(classes):
                y_row[j] *= share


@native
def rows_back(dy: Address, y: Address, dx: Address, blocks: int, classes: int, logarithm: bool) -> None:
    """dy - exp(y) sum(dy), or y (dy - sum(y dy))."""
    for row in range(blocks):
        at = 4 * row * classes
        dy_row = floats(dy + at, classes)
        y_row = floats(y + at, classes)
        dx_row = floats(dx + at, classes)
        total = _f(0)
        if logarithm:
            for j in range(classes):
                total += dy_row[j]
            for j in range(classes):
                dx_row[j] = dy_row[j] - exp(y_row[j]) * total
        else:
            for j in range(classes):
                total += dy_row[j] * y_row[j]
            for j in range(classes):
                dx_row[j] = y_row[j] * (dy_row[j] - total)


@native
def columns(
    x: Address, y: Address, best: Floats, total: Floats, blocks: int, classes: int, wide: int, logarithm: bool
) -> None:
    """best and total are (STRIP,)."""
    for block in range(blocks):
        for left in range(0, wide, STRIP):
            n = min(STRIP, wide - left)
            at = 4 * (block * classes * wide + left)
            best[:n] = -np.inf
            total[:n] = 0
            for i in range(classes):
                x_row = floats(x + at + 4 * i * wide, n)
                for j in range(n):
                    best[j] = x_row[j] if (x_row[j] > best[j]) | (x_row[j] != x_row[j]) else best[j]
            for i in range(classes):
                x_row = floats(x + at + 4 * i * wide, n)
                y_row = floats(y + at + 4 * i * wide, n)
                for j in range(n):
                    below = x_row[j] - best[j]
                    e = exp(below)
                    total[j] += e
                    y_row[j] = below if logarithm else e
            for j in range(n):
                total[j] = log(total[j]) if logarithm else _f(1) / total[j]
            for i in range(classes):
                y_row = floats(y + at + 4 * i * wide, n)
                for j in range(n):
                    y_row[j] = y_row[j] - total[j] if logarithm else y_row[j] * total[j]


@native
def columns_back(
    dy: Address, y: Address, dx: Address, total: Floats, blocks: int, classes: int, wide: int, logarithm: bool
) -> None:
    """total is (STRIP,)."""
    for block in range(blocks):
        for left in range(0, wide, STRIP):
            n = min(STRIP, wide - left)
            at = 4 * (block * classes * wide + left)
            total[:n] = 0
            for i in range(classes):
                dy_row = floats(dy + at + 4 * i * wide, n)
                y_row = floats(y + at + 4 * i * wide, n)
                for j in range(n):
                    total[j] += dy_row[j] if logarithm else dy_row[j] * y_row[j]
            for i in range(classes):
                dy_row = floats(dy + at + 4 * i * wide, n)
                y_row = floats(y + at + 4 * i * wide, n)
                dx_row = floats(dx + at + 4 * i * wide, n)
                if logarithm:
                    for j in range(n):
                        dx_row[j] = dy_row[j] - exp(y_row[j]) * total[j]
                else:
                    for j in range(n):
                        dx_row[j] = y_row[j] * (dy_row[j] - total[j])


def _extents(call: Call) -> dict[str, int]:
    shape = call.shapes.y
    axis = call.op.axis
    blocks = prod(shape[:axis])
    wide = prod(shape[axis + 1 :])
    log_too = isinstance(call.op, LogSoftmax)
    return {"blocks": blocks, "classes": shape[axis], "logarithm": log_too, **({} if wide == 1 else {"wide": wide})}


def buffers(op: Softmax, shapes: Shapes) -> Buffers:
    strip = ((STRIP,), FLOAT)
    if prod(shapes.y[op.axis + 1 :]) == 1:
        return Buffers()
    return Buffers(forward={"best": strip, "total": strip}, backward={"total": strip})


def forward(call: Call) -> Run:
    extents = _extents(call)
    return (columns if "wide" in extents else rows).on(call, **extents)


def backward(call: Call) -> Run:
    extents = _extents(call)
    return (columns_back if "wide" in extents else rows_back).on(call, **extents)


KERNELS = dict.fromkeys((LogSoftmax, Softmax), Kernel(forward, backward, buffers))
