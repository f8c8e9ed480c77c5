"""Activations, and the normalisation of stored pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes


def one_scratch(op: Any, shapes: Shapes) -> Buffers:
    return Buffers(backward={"part": (shapes.y, FLOAT)})


def relu_buffers(op: Any, shapes: Shapes) -> Buffers:
    return Buffers(backward={"mask": (shapes.y, "bool")})


def relu_forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    zero = y.dtype.type(0)

    def run() -> None:
        np.maximum(x, zero, out=y)

    return run


def relu_backward(call: Call) -> Run:
    y, dy, dx, mask = call.y, call.dy, call.dx[0], call.scratch["mask"]
    zero = y.dtype.type(0)

    def run() -> None:
        np.greater(y, zero, out=mask)
        np.multiply(dy, mask, out=dx)

    return run


def leaky_forward(call: Call) -> Run:
    x, y, slope = call.x[0], call.y, call.y.dtype.type(call.op.slope)
    larger = np.maximum if call.op.slope <= 1 else np.minimum

    def run() -> None:
        np.multiply(x, slope, out=y)
        larger(x, y, out=y)

    return run


def leaky_backward(call: Call) -> Run:
    y, dy, dx, mask = call.y, call.dy, call.dx[0], call.scratch["mask"]
    zero, slope = y.dtype.type(0), y.dtype.type(call.op.slope)
    assert dx is not None

    def run() -> None:
        np.greater(y, zero, out=mask)
        np.multiply(dy, slope, out=dx)
        np.copyto(dx, dy, where=mask)

    return run


def clipped_forward(call: Call) -> Run:
    x, y, zero, ceiling = call.x[0], call.y, call.y.dtype.type(0), call.y.dtype.type(call.op.ceiling)

    def run() -> None:
        np.maximum(x, zero, out=y)
        np.minimum(y, ceiling, out=y)

    return run


def clipped_buffers(op: Any, shapes: Shapes) -> Buffers:
    return Buffers(backward={"mask": (shapes.y, "bool"), "below": (shapes.y, "bool")})


def clipped_backward(call: Call) -> Run:
    y, dy, dx, mask, below = call.y, call.dy, call.dx[0], call.scratch["mask"], call.scratch["below"]
    zero, ceiling = y.dtype.type(0), y.dtype.type(call.op.ceiling)

    def run() -> None:
        np.greater(y, zero, out=mask)
        np.less(y, ceiling, out=below)
        np.logical_and(mask, below, out=mask)
        np.multiply(dy, mask, out=dx)

    return run


def sigmoid_forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    half = y.dtype.type(0.5)

    def run() -> None:  # (1 + tanh(x / 2)) / 2 does not overflow
        np.multiply(x, half, out=y)
        np.tanh(y, out=y)
        np.multiply(y, half, out=y)
        np.add(y, half, out=y)

    return run


def sigmoid_backward(call: Call) -> Run:
    y, dy, dx, part = call.y, call.dy, call.dx[0], call.scratch["part"]
    one = y.dtype.type(1)

    def run() -> None:  # dy y (1 - y)
        np.subtract(one, y, out=part)
        np.multiply(part, y, out=part)
        np.multiply(dy, part, out=dx)

    return run


def tanh_forward(call: Call) -> Run:
    x, y = call.x[0], call.y

    def run() -> None:
        np.tanh(x, out=y)

    return run


def tanh_backward(call: Call) -> Run:
    y, dy, dx, part = call.y, call.dy, call.dx[0], call.scratch["part"]
    one = y.dtype.type(1)

    def run() -> None:  # dy (1 - y^2)
        np.multiply(y, y, out=part)
        np.subtract(one, part, out=part)
        np.multiply(dy, part, out=dx)

    return run


def normalise_forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    shape = (-1, *([1] * (x.ndim - 2)))
    mean = np.array(call.op.mean, y.dtype).reshape(shape if len(call.op.mean) == x.shape[1] else x.shape[1:])
    scale = (1.0 / np.array(call.op.std, np.float64)).astype(y.dtype).reshape(shape)

    def run() -> None:
        np.subtract(x, mean, out=y)
        np.multiply(y, scale, out=y)

    return run
