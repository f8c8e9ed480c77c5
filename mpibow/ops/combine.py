"""Operators of several tensors: sum, product and maximum element by element, and concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Add, Multiply, Op, Shape, Tensor, one_shape


@dataclass(frozen=True)
class Maximum(Op):
    """y = the largest of all x_i; its gradient goes to the first of equals."""

    inputs: int
    kind: ClassVar[str] = "maximum"

    @property
    def differentiable(self) -> tuple[int, ...]:
        return tuple(range(self.inputs))

    def infer(self, *shapes: Shape) -> Shape:
        return one_shape(shapes, self.inputs)


@dataclass(frozen=True)
class Concat(Op):
    """y = the x_i one after the other along `axis`."""

    inputs: int
    axis: int
    kind: ClassVar[str] = "concat"

    @property
    def differentiable(self) -> tuple[int, ...]:
        return tuple(range(self.inputs))

    def infer(self, *shapes: Shape) -> Shape:
        if not shapes or len(shapes) != self.inputs:
            raise ShapeError(
                f"there must be {self.inputs} inputs as the operator says, and at least 1, got {len(shapes)}"
            )
        first, axis = shapes[0], self.axis
        if not 0 <= axis < len(first):
            raise ShapeError(f"axis {axis} must be one of the inputs' {len(first)} axes")
        if any((*shape[:axis], *shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]) for shape in shapes):
            raise ShapeError(f"all inputs must have one shape but for axis {axis}")
        return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def add(
    x: Tensor, y: Tensor, *others: Tensor, coefficients: Sequence[float] | None = None, name: str | None = None
) -> Tensor:
    """The sum of two or more tensors of one shape, each times its coefficient (1 unless given)."""
    inputs = (x, y, *others)
    op = Add((1.0,) * len(inputs) if coefficients is None else tuple(coefficients))
    return x.graph.add(op, *inputs, name=name)


def multiply(x: Tensor, y: Tensor, *others: Tensor, name: str | None = None) -> Tensor:
    """The product, element by element, of two or more tensors of one shape."""
    return x.graph.add(Multiply(2 + len(others)), x, y, *others, name=name)


def maximum(x: Tensor, y: Tensor, *others: Tensor, name: str | None = None) -> Tensor:
    """The largest, element by element, of two or more tensors of one shape."""
    return x.graph.add(Maximum(2 + len(others)), x, y, *others, name=name)


def concat(x: Tensor, *others: Tensor, axis: int = 1, name: str | None = None) -> Tensor:
    """Tensors one after the other along `axis`: channels unless given; below 0 it counts from the last."""
    return x.graph.add(Concat(1 + len(others), axis + len(x.shape) * (axis < 0)), x, *others, name=name)
