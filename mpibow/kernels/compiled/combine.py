"""Sums, products and maxima of several flat float32 arrays, in any common layout.

Any number of inputs is one pass through memory: a block of all inputs at a time, so that the block of y stays in L1.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mpibow.graph.formats import physical
from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.arguments import Address, Floats, Integers, Words
from mpibow.kernels.compiled.command import floats, integers, native
from mpibow.ops import Maximum

_f = np.float32
BLOCK = 1024  # elements


@native
def weighted_sum(y: Address, n: int, inputs: Words, factors: Floats) -> None:
    """y = the sum of factor x of each of two or more inputs x."""
    c0, c1 = factors[0], factors[1]
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        to, x0, x1 = floats(y + 4 * start, m), floats(inputs[0] + 4 * start, m), floats(inputs[1] + 4 * start, m)
        for i in range(m):
            to[i] = c0 * x0[i] + c1 * x1[i]
        for k in range(2, len(inputs)):
            x, c = floats(inputs[k] + 4 * start, m), factors[k]
            for i in range(m):
                to[i] += c * x[i]


@native
def spread(dy: Address, n: int, outputs: Words, factors: Floats) -> None:
    """dx = factor dy of each output dx."""
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        slope = floats(dy + 4 * start, m)
        for k in range(len(outputs)):
            dx, c = floats(outputs[k] + 4 * start, m), factors[k]
            for i in range(m):
                dx[i] = c * slope[i]


@native
def product(y: Address, n: int, inputs: Words) -> None:
    """y = x0 x1 ..."""
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        to, x0, x1 = floats(y + 4 * start, m), floats(inputs[0] + 4 * start, m), floats(inputs[1] + 4 * start, m)
        for i in range(m):
            to[i] = x0[i] * x1[i]
        for k in range(2, len(inputs)):
            x = floats(inputs[k] + 4 * start, m)
            for i in range(m):
                to[i] *= x[i]


@native
def product_back(dy: Address, n: int, inputs: Words, outputs: Words) -> None:
    """dx0 = dy x1 x2 ..., and so on; an output of 0 is not needed."""
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        slope = floats(dy + 4 * start, m)
        for k in range(len(inputs)):
            if outputs[k] == 0:
                continue
            first = 1 if k == 0 else 0
            dx, x0 = floats(outputs[k] + 4 * start, m), floats(inputs[first] + 4 * start, m)
            for i in range(m):
                dx[i] = slope[i] * x0[i]
            for j in range(first + 1, len(inputs)):
                if j != k:
                    x = floats(inputs[j] + 4 * start, m)
                    for i in range(m):
                        dx[i] *= x[i]


@native
def largest(y: Address, winner: Address, n: int, inputs: Words) -> None:
    """y = the largest, NaN above all; winner = the first input that has it."""
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        best, which, x0 = floats(y + 4 * start, m), integers(winner + 4 * start, m), floats(inputs[0] + 4 * start, m)
        for i in range(m):
            best[i] = x0[i]
            which[i] = 0
        for k in range(1, len(inputs)):
            x = floats(inputs[k] + 4 * start, m)
            for i in range(m):
                larger = x[i] > best[i]
                which[i] = np.int32(k) if larger else which[i]
                best[i] = x[i] if larger | (x[i] != x[i]) else best[i]


@native
def won(dy: Floats, winner: Integers, outputs: Words) -> None:
    """dx = dy where the winner is its input, else 0, for each output dx; an output of 0 is not needed."""
    for k in range(len(outputs)):
        if outputs[k]:
            dx, mine = floats(outputs[k], len(dy)), np.int32(k)
            for i in range(len(dy)):
                dx[i] = dy[i] if winner[i] == mine else _f(0)


def _factors(coefficients: Iterable[float]) -> Array:
    return np.array([*coefficients], np.float32)


def sum_forward(call: Call) -> Run:
    return weighted_sum.on(call, n=call.y.size, inputs=call.x, factors=_factors(1.0 for _ in call.x))


def add_forward(call: Call) -> Run:
    return weighted_sum.on(call, n=call.y.size, inputs=call.x, factors=_factors(call.op.coefficients))


def add_backward(call: Call) -> Run:
    wanted = [(dx, c) for dx, c in zip(call.dx, call.op.coefficients, strict=True) if dx is not None]
    outputs, factors = [dx for dx, _ in wanted], _factors(c for _, c in wanted)
    return spread.on(call, n=call.dy.size, outputs=outputs, factors=factors)


def multiply_forward(call: Call) -> Run:
    return product.on(call, n=call.y.size, inputs=call.x)


def multiply_backward(call: Call) -> Run:
    return product_back.on(call, n=call.dy.size, inputs=call.x, outputs=call.dx)


def maximum_buffers(op: Maximum, shapes: Shapes) -> Buffers:
    winner = {"winner": (physical(shapes.formats.y, shapes.y), "int32")}
    return Buffers(saved=winner)


def maximum_forward(call: Call) -> Run:
    return largest.on(call, n=call.y.size, inputs=call.x)


def maximum_backward(call: Call) -> Run:
    return won.on(call, outputs=call.dx)
