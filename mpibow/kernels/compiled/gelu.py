"""Gelu on flat float32 arrays, in any layout."""

from __future__ import annotations

import math

import numpy as np

from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.command import command, floats, native, words
from mpibow.kernels.compiled.numeric import exp, logistic, normal, sigmoid
from mpibow.ops.gelu import CUBE, SCALE

_f = np.float32
SLOPE, CUBIC, CUBIC3 = _f(2 * SCALE), _f(2 * SCALE * CUBE), _f(6 * SCALE * CUBE)
DENSITY = _f((2 * math.pi) ** -0.5)


@native
def value(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, n, by tanh): y = x P(x), or x sigmoid(2 s (x + c x^3)), the form by tanh."""
    a = words(arguments, count)
    n = a[2]
    x, y = floats(a[0], n), floats(a[1], n)
    if a[3]:
        for i in range(n):
            y[i] = x[i] * sigmoid(x[i] * (SLOPE + CUBIC * (x[i] * x[i])))
    else:
        for i in range(n):
            y[i] = x[i] * normal(x[i], exp(_f(-0.5) * (x[i] * x[i])))
    return 0


@native
def slope(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, x, dx, n, by tanh): dx = dy (P + x P')."""
    a = words(arguments, count)
    n = a[3]
    dy, x, dx = floats(a[0], n), floats(a[1], n), floats(a[2], n)
    if a[4]:
        for i in range(n):
            square = x[i] * x[i]
            p, rise = logistic(x[i] * (SLOPE + CUBIC * square))
            dx[i] = dy[i] * (p + rise * (x[i] * (SLOPE + CUBIC3 * square)))
    else:
        for i in range(n):
            bell = exp(_f(-0.5) * (x[i] * x[i]))
            dx[i] = dy[i] * (normal(x[i], bell) + DENSITY * x[i] * bell)
    return 0


def forward(call: Call) -> Run:
    return command(value, call.x[0], call.y, call.y.size, int(call.op.tanh))


def backward(call: Call) -> Run:
    (dx,) = call.dx
    assert dx is not None
    return command(slope, call.dy, call.x[0], dx, dx.size, int(call.op.tanh))
