"""Elementwise activations. But for gelu's, their backward reads the output only: the input's memory is free by then."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor


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
        if not 0.0 <= self.slope < inf:  # below 0 the output's sign would not tell the input's
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


@dataclass(frozen=True)
class Gelu(Elementwise):
    """y = x P(x), P the normal distribution's function, or the paper's form of it by tanh (arXiv:1606.08415, 2)."""

    tanh: bool
    kind: ClassVar[str] = "gelu"
    reads: ClassVar[frozenset[str]] = frozenset("x")


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
    """min(max(x, 0), ceiling), of any shape: relu6 unless told otherwise."""
    return x.graph.add(ClippedRelu(ceiling), x, name=name)


def gelu(x: Tensor, *, tanh: bool = False, name: str | None = None) -> Tensor:
    """x (1 + erf(x / sqrt(2))) / 2, or with `tanh` x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    return x.graph.add(Gelu(tanh), x, name=name)
