"""Gelu on flat float32 arrays, in any layout."""

from __future__ import annotations

import math

import numpy as np

from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.arguments import Floats
from mpibow.kernels.compiled.command import native
from mpibow.kernels.compiled.numeric import exp, logistic, normal, sigmoid
from mpibow.ops.gelu import CUBE, SCALE

_f = np.float32
SLOPE, CUBIC, CUBIC3 = _f(2 * SCALE), _f(2 * SCALE * CUBE), _f(6 * SCALE * CUBE)
DENSITY = _f((2 * math.pi) ** -0.5)


@native
def value(x: Floats, y: Floats, by_tanh: bool) -> None:
    """y = x P(x), or x sigmoid(2 s (x + c x^3)), the form by tanh."""
    if by_tanh:
        for i in range(len(x)):
            y[i] = x[i] * sigmoid(x[i] * (SLOPE + CUBIC * (x[i] * x[i])))
    else:
        for i in range(len(x)):
            y[i] = x[i] * normal(x[i], exp(_f(-0.5) * (x[i] * x[i])))


@native
def slope(dy: Floats, x: Floats, dx: Floats, by_tanh: bool) -> None:
    """dx = dy (P + x P')."""
    if by_tanh:
        for i in range(len(x)):
            square = x[i] * x[i]
            p, rise = logistic(x[i] * (SLOPE + CUBIC * square))
            dx[i] = dy[i] * (p + rise * (x[i] * (SLOPE + CUBIC3 * square)))
    else:
        for i in range(len(x)):
            bell = exp(_f(-0.5) * (x[i] * x[i]))
            dx[i] = dy[i] * (normal(x[i], bell) + DENSITY * x[i] * bell)


def forward(call: Call) -> Run:
    return value.on(call, by_tanh=call.op.tanh)


def backward(call: Call) -> Run:
    return slope.on(call, by_tanh=call.op.tanh)
