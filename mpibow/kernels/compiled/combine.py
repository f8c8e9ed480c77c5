"""Sums, products and maxima of several flat float32 arrays, in any common layout.

Any number of inputs is one pass through memory: a block of all inputs at a time, so that the block of y stays in L1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.formats import physical
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.command import command, floats, integers, native, number, words
from mpibow.ops import Maximum

_f = np.float32
BLOCK = 1024  # elements


@native
def weighted_sum(arguments: int, _: int, count: int, __: int) -> int:
    """(y, n, inputs, x0, c0, x1, c1, ...): y = c0 x0 + c1 x1 + ..."""
    a = words(arguments, count)
    c0, c1 = _f(number(a[4])), _f(number(a[6]))
    for start in range(0, a[1], BLOCK):
        n = min(BLOCK, a[1] - start)
        y, x0, x1 = floats(a[0] + 4 * start, n), floats(a[3] + 4 * start, n), floats(a[5] + 4 * start, n)
        for i in range(n):
            y[i] = c0 * x0[i] + c1 * x1[i]
        for k in range(2, a[2]):
            x, c = floats(a[3 + 2 * k] + 4 * start, n), _f(number(a[4 + 2 * k]))
            for i in range(n):
                y[i] += c * x[i]
    return 0


@native
def spread(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, n, outputs, dx0, c0, dx1, c1, ...): dx0 = c0 dy, dx1 = c1 dy, ..."""
    a = words(arguments, count)
    for start in range(0, a[1], BLOCK):
        n = min(BLOCK, a[1] - start)
        dy = floats(a[0] + 4 * start, n)
        for k in range(a[2]):
            dx, c = floats(a[3 + 2 * k] + 4 * start, n), _f(number(a[4 + 2 * k]))
            for i in range(n):
                dx[i] = c * dy[i]
    return 0


@native
def product(arguments: int, _: int, count: int, __: int) -> int:
    """(y, n, inputs, x0, x1, ...): y = x0 x1 ..."""
    a = words(arguments, count)
    for start in range(0, a[1], BLOCK):
        n = min(BLOCK, a[1] - start)
        y, x0, x1 = floats(a[0] + 4 * start, n), floats(a[3] + 4 * start, n), floats(a[4] + 4 * start, n)
        for i in range(n):
            y[i] = x0[i] * x1[i]
        for k in range(2, a[2]):
            x = floats(a[3 + k] + 4 * start, n)
            for i in range(n):
                y[i] *= x[i]
    return 0


@native
def product_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, n, inputs, x0, x1, ..., dx0, dx1, ...): dx0 = dy x1 x2 ..., and so on; 0 for a dx that is not needed."""
    a = words(arguments, count)
    inputs = a[2]
    for start in range(0, a[1], BLOCK):
        n = min(BLOCK, a[1] - start)
        dy = floats(a[0] + 4 * start, n)
        for k in range(inputs):
            if a[3 + inputs + k] == 0:
                continue
            first = 1 if k == 0 else 0
            dx, x0 = floats(a[3 + inputs + k] + 4 * start, n), floats(a[3 + first] + 4 * start, n)
            for i in range(n):
                dx[i] = dy[i] * x0[i]
            for j in range(first + 1, inputs):
                if j != k:
                    x = floats(a[3 + j] + 4 * start, n)
                    for i in range(n):
                        dx[i] *= x[i]
    return 0


@native
def largest(arguments: int, _: int, count: int, __: int) -> int:
    """(y, winner, n, inputs, x0, x1, ...): y = the largest, NaN above all; winner = the first input that has it."""
    a = words(arguments, count)
    for start in range(0, a[2], BLOCK):
        n = min(BLOCK, a[2] - start)
        y, winner, x0 = floats(a[0] + 4 * start, n), integers(a[1] + 4 * start, n), floats(a[4] + 4 * start, n)
        for i in range(n):
            y[i] = x0[i]
            winner[i] = 0
        for k in range(1, a[3]):
            x = floats(a[4 + k] + 4 * start, n)
            for i in range(n):
                larger = x[i] > y[i]
                winner[i] = np.int32(k) if larger else winner[i]
                y[i] = x[i] if larger | (x[i] != x[i]) else y[i]
    return 0


@native
def won(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, winner, n, outputs, dx0, k0, ...): dx0 = dy where the winner is k0, else 0; ..."""
    a = words(arguments, count)
    for start in range(0, a[2], BLOCK):
        n = min(BLOCK, a[2] - start)
        dy, winner = floats(a[0] + 4 * start, n), integers(a[1] + 4 * start, n)
        for k in range(a[3]):
            dx, mine = floats(a[4 + 2 * k] + 4 * start, n), np.int32(a[5 + 2 * k])
            for i in range(n):
                dx[i] = dy[i] if winner[i] == mine else _f(0)
    return 0


def _interleaved(pairs: Any) -> list[Any]:
    return [value for pair in pairs for value in pair]


def sum_forward(call: Call) -> Run:
    return command(weighted_sum, call.y, call.y.size, len(call.x), *_interleaved((x, 1.0) for x in call.x))


def add_forward(call: Call) -> Run:
    terms = zip(call.x, map(float, call.op.coefficients), strict=True)
    return command(weighted_sum, call.y, call.y.size, len(call.x), *_interleaved(terms))


def add_backward(call: Call) -> Run:
    each = zip(call.dx, map(float, call.op.coefficients), strict=True)
    wanted = [(dx, c) for dx, c in each if dx is not None]
    return command(spread, call.dy, call.dy.size, len(wanted), *_interleaved(wanted))


def multiply_forward(call: Call) -> Run:
    return command(product, call.y, call.y.size, len(call.x), *call.x)


def multiply_backward(call: Call) -> Run:
    wanted = [0 if dx is None else dx for dx in call.dx]
    return command(product_back, call.dy, call.dy.size, len(call.x), *call.x, *wanted)


def maximum_buffers(op: Maximum, shapes: Shapes) -> Buffers:
    winner = {"winner": (physical(shapes.formats.y, shapes.y), "int32")}
    return Buffers(saved=winner) if shapes.training else Buffers(forward=winner)


def maximum_forward(call: Call) -> Run:
    return command(largest, call.y, call.buffer("winner"), call.y.size, len(call.x), *call.x)


def maximum_backward(call: Call) -> Run:
    wanted = [(dx, i) for i, dx in enumerate(call.dx) if dx is not None]
    return command(won, call.dy, call.saved["winner"], call.dy.size, len(wanted), *_interleaved(wanted))
