"""Elementwise activations. Their backward reads the output only, so the input's memory is free after forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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


def relu(x: Tensor, *, name: str | None = None) -> Tensor:
    """max(x, 0), of any shape."""
    return x.graph.add(Relu(), x, name=name)


def sigmoid(x: Tensor, *, name: str | None = None) -> Tensor:
    """1 / (1 + exp(-x)), of any shape."""
    return x.graph.add(Sigmoid(), x, name=name)


def tanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """tanh(x), of any shape."""
    return x.graph.add(Tanh(), x, name=name)
