"""Functions of flat float32 arrays, in any layout that all of them have: sums, products, maxima, relu, gelu.

Any number of inputs is one pass through memory: a block of all inputs at a time, so that the block of y stays in L1.
"""

import math
from collections.abc import Sequence

import numpy as np

from mpibow.graph import Buffers, Call, Kernel, Run, Shapes, as_given
from mpibow.graph.formats import physical
from mpibow.graph.steps import Sum
from mpibow.ops import Add, Gelu, Maximum, Multiply
from mpibow.ops.fused import AddRelu
from mpibow.ops.gelu import CUBE, SCALE

from .command import together
from .native import Address, Arguments, Floats, Integers, Words, floats, integers, native
from .numeric import exp, logistic, normal, sigmoid

_f = np.float32
BLOCK = 1024  # elements


@native
def masked(dy: Floats, y: Floats, dx: Floats) -> None:
    """dx = dy where y > 0, else 0: the gradient of a relu."""
    zero = _f(0)
    for i in range(len(dx)):
        dx[i] = dy[i] if y[i] > zero else zero


@native
def add_relu(x: Floats, x1: Floats, y: Floats) -> None:
    """y = max(x + x1, 0); y may be x."""
    zero = _f(0)
    if x.ctypes.data == y.ctypes.data:  # overlapping arrays would make the loop scalar
        for i in range(len(y)):
            total = y[i] + x1[i]
            y[i] = zero if total <= zero else total
    else:
        for i in range(len(y)):
            total = x[i] + x1[i]
            y[i] = zero if total <= zero else total


def add_relu_backward(call: Call) -> Run:
    """The gradients of both inputs are the same: in a plan they share one array."""
    return together([masked.command(dy=call.dy, y=call.y, dx=dx) for dx in call.dx if dx is not None])


@native
def weighted_sum(y: Address, n: int, inputs: Words, factors: Floats) -> None:
    """y = the sum of factor x of each of two or more inputs x."""
    c0 = factors[0]
    c1 = factors[1]
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        to = floats(y + 4 * start, m)
        x0 = floats(inputs[0] + 4 * start, m)
        x1 = floats(inputs[1] + 4 * start, m)
        for i in range(m):
            to[i] = c0 * x0[i] + c1 * x1[i]
        for k in range(2, len(inputs)):
            x = floats(inputs[k] + 4 * start, m)
            c = factors[k]
            for i in range(m):
                to[i] += c * x[i]


@native
def scaled_copies(dy: Address, n: int, outputs: Words, factors: Floats) -> None:
    """dx = factor dy of each output dx."""
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        slope = floats(dy + 4 * start, m)
        for k in range(len(outputs)):
            dx = floats(outputs[k] + 4 * start, m)
            c = factors[k]
            for i in range(m):
                dx[i] = c * slope[i]


@native
def product(y: Address, n: int, inputs: Words) -> None:
    """y = x0 x1 ..."""
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        to = floats(y + 4 * start, m)
        x0 = floats(inputs[0] + 4 * start, m)
        x1 = floats(inputs[1] + 4 * start, m)
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
            dx = floats(outputs[k] + 4 * start, m)
            x0 = floats(inputs[first] + 4 * start, m)
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
        best = floats(y + 4 * start, m)
        which = integers(winner + 4 * start, m)
        x0 = floats(inputs[0] + 4 * start, m)
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
            dx = floats(outputs[k], len(dy))
            mine = np.int32(k)
            for i in range(len(dy)):
                dx[i] = dy[i] if winner[i] == mine else _f(0)


def _inputs(call: Call) -> Arguments:
    return {"n": call.y.size, "inputs": call.x}


def _weighted(call: Call, factors: Sequence[float]) -> Run:
    return weighted_sum.on(call, factors=np.array(factors, np.float32), **_inputs(call))


def add_backward(call: Call) -> Run:
    wanted = [(dx, c) for dx, c in zip(call.dx, call.op.coefficients, strict=True) if dx is not None]
    outputs = [dx for dx, _ in wanted]
    factors = np.array([c for _, c in wanted], np.float32)
    return scaled_copies.on(call, n=call.dy.size, outputs=outputs, factors=factors)


def maximum_buffers(op: Maximum, shapes: Shapes) -> Buffers:
    return Buffers(saved={"winner": (physical(shapes.formats.y, shapes.y), "int32")})


GELU_SLOPE = _f(2 * SCALE)
CUBIC = _f(2 * SCALE * CUBE)
CUBIC3 = _f(6 * SCALE * CUBE)
DENSITY = _f((2 * math.pi) ** -0.5)


@native
def gelu_value(x: Floats, y: Floats, tanh: bool) -> None:
    """y = x P(x), or x sigmoid(2 s (x + c x^3)), the form by tanh."""
    if tanh:
        for i in range(len(x)):
            y[i] = x[i] * sigmoid(x[i] * (GELU_SLOPE + CUBIC * (x[i] * x[i])))
    else:
        for i in range(len(x)):
            y[i] = x[i] * normal(x[i], exp(_f(-0.5) * (x[i] * x[i])))


@native
def gelu_slope(dy: Floats, x: Floats, dx: Floats, tanh: bool) -> None:
    """dx = dy (P + x P')."""
    if tanh:
        for i in range(len(x)):
            square = x[i] * x[i]
            p, rise = logistic(x[i] * (GELU_SLOPE + CUBIC * square))
            dx[i] = dy[i] * (p + rise * (x[i] * (GELU_SLOPE + CUBIC3 * square)))
    else:
        for i in range(len(x)):
            bell = exp(_f(-0.5) * (x[i] * x[i]))
            dx[i] = dy[i] * (normal(x[i], bell) + DENSITY * x[i] * bell)


KERNELS = {
    Add: Kernel(lambda call: _weighted(call, call.op.coefficients), add_backward, formats=as_given),
    AddRelu: Kernel(add_relu.half(), add_relu_backward, formats=as_given),
    Gelu: Kernel(gelu_value.half(), gelu_slope.half(), formats=as_given),
    Maximum: Kernel(largest.half(_inputs), won.half(lambda call: {"outputs": call.dx}), maximum_buffers, as_given),
    Multiply: Kernel(
        product.half(_inputs), product_back.half(lambda call: {**_inputs(call), "outputs": call.dx}), formats=as_given
    ),
    Sum: Kernel(lambda call: _weighted(call, [1.0] * len(call.x)), formats=as_given),
}
