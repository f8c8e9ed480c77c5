"""Concatenation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Array, Moving, Shape, Tensor
from mpibow.graph.kernel import Call
from mpibow.ops.cast import floats
from mpibow.ops.moves import MoveTable, Pairs, axis_in_memory

__all__ = ["Concat", "concat"]


@dataclass(frozen=True)
class Concat(Moving):
    """y = the x_i one after the other along `axis`."""

    inputs: int
    axis: int
    kind = "concat"

    @property
    def differentiable(self) -> tuple[int, ...]:
        return tuple(range(self.inputs))

    def infer(self, *shapes: Shape) -> Shape:
        if not shapes or len(shapes) != self.inputs:
            raise ShapeError(
                f"there must be {self.inputs} inputs, as many as the operator has, and at least 1, got {len(shapes)}"
            )
        first, axis = shapes[0], self.axis
        if not 0 <= axis < len(first):
            raise ShapeError(f"axis {axis} must be one of the inputs' {len(first)} axes")
        if any((*shape[:axis], *shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]) for shape in shapes):
            raise ShapeError(f"all inputs must have one shape but for axis {axis}")
        return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def concat(x: Tensor, *others: Tensor, axis: int = 1, name: str | None = None) -> Tensor:
    """Joins tensors along `axis`, by default 1, the channels; a negative axis counts from the last.

    If one of them has floats, integers become floats.
    """
    parts = (x, *others) if len({each.dtype for each in (x, *others)}) == 1 else floats(x, *others)
    return x.graph.add(Concat(len(parts), axis + len(x.shape) * (axis < 0)), *parts, name=name)


# The reference kernels.


def forward(call: Call) -> Pairs:
    return list(zip(_parts(call, call.y), call.x, strict=True))


def backward(call: Call) -> Pairs:
    return [(dx, part) for dx, part in zip(call.dx, _parts(call, call.dy), strict=True) if dx is not None]


def _parts(call: Call, whole: Array) -> list[Array]:
    """The views of `whole` that hold the inputs."""
    axis = axis_in_memory(call, call.op.axis)
    return np.split(whole, np.cumsum([x.shape[axis] for x in call.x])[:-1].tolist(), axis)


MOVES: MoveTable = {
    Concat: (forward, backward),
}
