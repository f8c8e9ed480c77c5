"""Operators that only change how an array is read."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor


@dataclass(frozen=True)
class Flatten(Op):
    """x (n, ...) -> (n, everything else). A view: no kernel runs."""

    kind: ClassVar[str] = "flatten"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) < 2:
            raise ShapeError("input must have a batch axis and at least one more")
        return (x[0], prod(x[1:]))

    def is_view(self, training: bool) -> bool:
        return True


def flatten(x: Tensor, *, name: str | None = None) -> Tensor:
    """x (n, ...) -> (n, features)."""
    return x.graph.add(Flatten(), x, name=name)
