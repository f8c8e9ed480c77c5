"""Elementwise activations whose backward reads the output only: the input's memory is free by then."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Op, Shape, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes

__all__ = [
    "ClippedRelu",
    "LeakyRelu",
    "Relu",
    "Sigmoid",
    "Tanh",
    "clipped_relu",
    "leaky_relu",
    "relu",
    "sigmoid",
    "tanh",
]


class Elementwise(Op):
    """y has x's shape."""

    reads: ClassVar[frozenset[str]] = frozenset("y")

    def infer(self, *shapes: Shape) -> Shape:
        return shapes[0]


@dataclass(frozen=True)
class Relu(Elementwise):
    """y = max(x, 0)."""

    kind: ClassVar[str] = "relu"


@dataclass(frozen=True)
class Sigmoid(Elementwise):
    """y = 1 / (1 + exp(-x))."""

    kind: ClassVar[str] = "sigmoid"


@dataclass(frozen=True)
class Tanh(Elementwise):
    """y = tanh(x)."""

    kind: ClassVar[str] = "tanh"


@dataclass(frozen=True)
class LeakyRelu(Elementwise):
    """y = x where x > 0, else slope x (Maas et al., ICML 2013 workshop)."""

    slope: float
    kind: ClassVar[str] = "leaky_relu"

    def infer(self, *shapes: Shape) -> Shape:
        if not 0.0 <= self.slope < inf:  # below 0 the output's sign would not be the input's
            raise ShapeError(f"slope must be at least 0, got {self.slope}")
        return shapes[0]


@dataclass(frozen=True)
class ClippedRelu(Elementwise):
    """y = min(max(x, 0), ceiling); its gradient is 0 at both ends."""

    ceiling: float
    kind: ClassVar[str] = "clipped_relu"

    def infer(self, *shapes: Shape) -> Shape:
        if not 0.0 < self.ceiling < inf:
            raise ShapeError(f"ceiling must be above 0, got {self.ceiling}")
        return shapes[0]


def relu(x: Tensor, *, name: str | None = None) -> Tensor:
    """max(x, 0), of any shape."""
    return x.graph.add(Relu(), x, name=name)


def sigmoid(x: Tensor, *, name: str | None = None) -> Tensor:
    """1 / (1 + exp(-x)), of any shape."""
    return x.graph.add(Sigmoid(), x, name=name)


def tanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """tanh(x), of any shape."""
    return x.graph.add(Tanh(), x, name=name)


def leaky_relu(x: Tensor, slope: float = 0.01, *, name: str | None = None) -> Tensor:
    """x where x > 0, else slope x, of any shape."""
    return x.graph.add(LeakyRelu(slope), x, name=name)


def clipped_relu(x: Tensor, ceiling: float = 6.0, *, name: str | None = None) -> Tensor:
    """min(max(x, 0), ceiling), of any shape; the default ceiling is 6 (relu6)."""
    return x.graph.add(ClippedRelu(ceiling), x, name=name)


# The reference kernels.


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


KERNELS: KernelTable = {
    ClippedRelu: Kernel(clipped_forward, clipped_backward, clipped_buffers),
    LeakyRelu: Kernel(leaky_forward, leaky_backward, relu_buffers),
    Relu: Kernel(relu_forward, relu_backward, relu_buffers),
    Sigmoid: Kernel(sigmoid_forward, sigmoid_backward, one_scratch),
    Tanh: Kernel(tanh_forward, tanh_backward, one_scratch),
}
