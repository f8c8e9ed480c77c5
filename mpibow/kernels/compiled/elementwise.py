"""Activations on flat float32 arrays, in any layout; NaN stays."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import numpy as np

from mpibow.graph.formats import canonical, physical
from mpibow.graph.kernel import Call, Formats, Run, Shapes
from mpibow.kernels.compiled.command import Native, command, floats, native, number, together, words
from mpibow.kernels.compiled.numeric import sigmoid, tanh

_f = np.float32


def as_given(op: Any, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    """Everything in the first input's layout: for functions that leave padding 0."""
    return Formats((given[0],) * len(given), given[0])


def unpadded(op: Any, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    """The given layout where it has no padding: for functions whose value at 0 is not 0."""
    (x,), (tag,) = shapes.x, given
    tag = tag if prod(physical(tag, x)) == prod(x) else canonical(x)
    return Formats((tag,), tag)


@native
def masked(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, y, dx, n): dx = dy where y > 0, else 0: the gradient of a relu."""
    a = words(arguments, count)
    n = a[3]
    dy, y, dx = floats(a[0], n), floats(a[1], n), floats(a[2], n)
    zero = _f(0)
    for i in range(n):
        dx[i] = dy[i] if y[i] > zero else zero
    return 0


@native
def add_relu(arguments: int, _: int, count: int, __: int) -> int:
    """(x0, x1, y, n): y = max(x0 + x1, 0); y may be x0."""
    a = words(arguments, count)
    n = a[3]
    x0, x1, y = floats(a[0], n), floats(a[1], n), floats(a[2], n)
    zero = _f(0)
    if a[0] == a[2]:  # overlapping arrays would make the loop scalar
        for i in range(n):
            total = y[i] + x1[i]
            y[i] = zero if total <= zero else total
    else:
        for i in range(n):
            total = x0[i] + x1[i]
            y[i] = zero if total <= zero else total
    return 0


@native
def clipped(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, n, ceiling): y = min(max(x, 0), ceiling)."""
    a = words(arguments, count)
    n, ceiling = a[2], _f(number(a[3]))
    x, y = floats(a[0], n), floats(a[1], n)
    zero = _f(0)
    for i in range(n):
        value = zero if x[i] <= zero else x[i]
        y[i] = ceiling if value >= ceiling else value
    return 0


@native
def clipped_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, y, dx, n, ceiling): dx = dy where 0 < y < ceiling, else 0."""
    a = words(arguments, count)
    n, ceiling = a[3], _f(number(a[4]))
    dy, y, dx = floats(a[0], n), floats(a[1], n), floats(a[2], n)
    zero = _f(0)
    for i in range(n):
        dx[i] = dy[i] if (y[i] > zero) & (y[i] < ceiling) else zero
    return 0


@native
def leaky(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, n, slope): y = x where x > 0, else slope x."""
    a = words(arguments, count)
    n, slope = a[2], _f(number(a[3]))
    x, y = floats(a[0], n), floats(a[1], n)
    for i in range(n):
        y[i] = x[i] if x[i] > _f(0) else slope * x[i]
    return 0


@native
def leaky_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, y, dx, n, slope): dx = dy where y > 0, else slope dy."""
    a = words(arguments, count)
    n, slope = a[3], _f(number(a[4]))
    dy, y, dx = floats(a[0], n), floats(a[1], n), floats(a[2], n)
    for i in range(n):
        dx[i] = dy[i] if y[i] > _f(0) else slope * dy[i]
    return 0


@native
def sigmoids(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, n): y = 1 / (1 + exp(-x))."""
    a = words(arguments, count)
    n = a[2]
    x, y = floats(a[0], n), floats(a[1], n)
    for i in range(n):
        y[i] = sigmoid(x[i])
    return 0


@native
def sigmoids_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, y, dx, n): dx = dy y (1 - y)."""
    a = words(arguments, count)
    n = a[3]
    dy, y, dx = floats(a[0], n), floats(a[1], n), floats(a[2], n)
    for i in range(n):
        dx[i] = dy[i] * (y[i] * (_f(1) - y[i]))
    return 0


@native
def tanhs(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, n): y = tanh(x)."""
    a = words(arguments, count)
    n = a[2]
    x, y = floats(a[0], n), floats(a[1], n)
    for i in range(n):
        y[i] = tanh(x[i])
    return 0


@native
def tanhs_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, y, dx, n): dx = dy (1 - y^2)."""
    a = words(arguments, count)
    n = a[3]
    dy, y, dx = floats(a[0], n), floats(a[1], n), floats(a[2], n)
    for i in range(n):
        dx[i] = dy[i] * (_f(1) - y[i] * y[i])
    return 0


def _forward(function: Native[...], call: Call, *numbers: float | int) -> Run:
    return command(function, call.x[0], call.y, call.y.size, *numbers)


def _backward(function: Native[...], call: Call, *numbers: float | int) -> Run:
    """The backward run of functions whose gradient reads y."""
    (dx,) = call.dx
    assert dx is not None
    return command(function, call.dy, call.y, dx, dx.size, *numbers)


def relu_forward(call: Call) -> Run:
    return _forward(clipped, call, inf)


def relu_backward(call: Call) -> Run:
    return _backward(masked, call)


def clipped_forward(call: Call) -> Run:
    return _forward(clipped, call, float(call.op.ceiling))


def clipped_backward(call: Call) -> Run:
    return _backward(clipped_back, call, float(call.op.ceiling))


def leaky_forward(call: Call) -> Run:
    return _forward(leaky, call, float(call.op.slope))


def leaky_backward(call: Call) -> Run:
    return _backward(leaky_back, call, float(call.op.slope))


def sigmoid_forward(call: Call) -> Run:
    return _forward(sigmoids, call)


def sigmoid_backward(call: Call) -> Run:
    return _backward(sigmoids_back, call)


def tanh_forward(call: Call) -> Run:
    return _forward(tanhs, call)


def tanh_backward(call: Call) -> Run:
    return _backward(tanhs_back, call)


def add_relu_forward(call: Call) -> Run:
    return command(add_relu, *call.x, call.y, call.y.size)


def add_relu_backward(call: Call) -> Run:
    """The gradients of both inputs are the same: in a plan they share one array."""
    return together([command(masked, call.dy, call.y, dx, dx.size) for dx in call.dx if dx is not None])
