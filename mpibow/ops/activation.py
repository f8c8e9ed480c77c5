"""Elementwise activations whose backward reads the output only: the input's memory is free by then."""

from __future__ import annotations

from math import inf
from typing import Protocol

from mpibow.errors import ShapeError
from mpibow.formulas import functions as f
from mpibow.graph.graph import Op, Shape, Tensor
from mpibow.graph.infix import named
from mpibow.ops.pointwise import Element, always

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

    reads = frozenset("y")


class OfOne(Protocol):
    """A function of one tensor."""

    def __call__(self, x: Tensor, *, name: str | None = None) -> Tensor: ...


def of_one(op: Elementwise, text: str) -> OfOne:
    """The function that adds `op`, which has no settings, to a graph; it has the operator's name."""

    def function(x: Tensor, *, name: str | None = None) -> Tensor:
        return x.graph.add(op, x, name=name)

    function.__doc__ = text
    return named(function, op.kind)


class Relu(Elementwise):
    """y = max(x, 0)."""

    kind = "relu"


class Sigmoid(Elementwise):
    """y = 1 / (1 + exp(-x))."""

    kind = "sigmoid"


class Tanh(Elementwise):
    """y = tanh(x)."""

    kind = "tanh"


class LeakyRelu(Elementwise):
    """y = x where x > 0, else slope x (Maas et al., ICML 2013 workshop)."""

    slope: float
    kind = "leaky_relu"

    def infer(self, x: Shape) -> Shape:
        if not 0.0 <= self.slope < inf:  # below 0 the output's sign would not be the input's
            raise ShapeError(f"slope must be at least 0, got {self.slope}")
        return x


class ClippedRelu(Elementwise):
    """y = min(max(x, 0), ceiling); its gradient is 0 at both ends."""

    ceiling: float
    kind = "clipped_relu"

    def infer(self, x: Shape) -> Shape:
        if not 0.0 < self.ceiling < inf:
            raise ShapeError(f"ceiling must be above 0, got {self.ceiling}")
        return x


relu = of_one(Relu(), "max(x, 0), of any shape.")
sigmoid = of_one(Sigmoid(), "1 / (1 + exp(-x)), of any shape.")
tanh = of_one(Tanh(), "tanh(x), of any shape.")


def leaky_relu(x: Tensor, slope: float = 0.01, *, name: str | None = None) -> Tensor:
    """x where x > 0, else slope x, of any shape."""
    return x.graph.add(LeakyRelu(slope), x, name=name)


def clipped_relu(x: Tensor, ceiling: float = 6.0, *, name: str | None = None) -> Tensor:
    """min(max(x, 0), ceiling), of any shape; the default ceiling is 6 (relu6)."""
    return x.graph.add(ClippedRelu(ceiling), x, name=name)


# Their formulas.


def relu_value(x: Element) -> Element:
    return f.maximum(x, 0)


def relu_gradient(y: Element, dy: Element) -> Element:
    return f.where(y > 0, dy, 0)


def leaky_value(x: Element, *, slope: float) -> Element:
    return f.where(x > 0, x, slope * x)


def leaky_gradient(y: Element, dy: Element, *, slope: float) -> Element:
    return f.where(y > 0, dy, slope * dy)


def clipped_value(x: Element, *, ceiling: float) -> Element:
    return f.minimum(f.maximum(x, 0), ceiling)


def clipped_gradient(y: Element, dy: Element, *, ceiling: float) -> Element:
    return f.where(y > 0, f.where(y < ceiling, dy, 0), 0)


def sigmoid_value(x: Element) -> Element:
    return 1 / (1 + f.exp(-x))


def sigmoid_gradient(y: Element, dy: Element) -> Element:
    return dy * (y * (1 - y))


def tanh_value(x: Element) -> Element:
    return f.tanh(x)


def tanh_gradient(y: Element, dy: Element) -> Element:
    return dy * (1 - y * y)


FORMULAS = {
    ClippedRelu: always(clipped_value, clipped_gradient),
    LeakyRelu: always(leaky_value, leaky_gradient),
    Relu: always(relu_value, relu_gradient),
    Sigmoid: always(sigmoid_value, sigmoid_gradient),
    Tanh: always(tanh_value, tanh_gradient),
}
