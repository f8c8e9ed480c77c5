"""A relu's gradient, and a sum with a relu, on flat float32 arrays in any layout; NaN stays."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.kernel import Call, Formats, Run, Shapes
from mpibow.kernels.compiled.arguments import Floats
from mpibow.kernels.compiled.command import native, together

_f = np.float32


def as_given(op: Any, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    """Everything in the first input's layout: for functions that leave padding 0."""
    return Formats((given[0],) * len(given), given[0])


@native
def masked(dy: Floats, y: Floats, dx: Floats) -> None:
    """dx = dy where y > 0, else 0: the gradient of a relu."""
    zero = _f(0)
    for i in range(len(dx)):
        dx[i] = dy[i] if y[i] > zero else zero


@native
def add_relu(x0: Floats, x1: Floats, y: Floats) -> None:
    """y = max(x0 + x1, 0); y may be x0."""
    zero = _f(0)
    if x0.ctypes.data == y.ctypes.data:  # overlapping arrays would make the loop scalar
        for i in range(len(y)):
            total = y[i] + x1[i]
            y[i] = zero if total <= zero else total
    else:
        for i in range(len(y)):
            total = x0[i] + x1[i]
            y[i] = zero if total <= zero else total


def add_relu_forward(call: Call) -> Run:
    return add_relu.on(call, x0=call.x[0])


def add_relu_backward(call: Call) -> Run:
    """The gradients of both inputs are the same: in a plan they share one array."""
    return together([masked.command(dy=call.dy, y=call.y, dx=dx) for dx in call.dx if dx is not None])
