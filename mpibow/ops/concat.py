"""Concatenation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Array, Moving, Shape, Tensor
from mpibow.graph.kernel import Call, Kernel, KernelTable, Run
from mpibow.ops.cast import floats

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


def _parts(op: Concat, whole: Array, extents: list[int]) -> list[Array]:
    """The views of `whole` that hold the inputs."""
    cuts = np.cumsum(extents)[:-1].tolist()
    return np.split(whole, cuts, axis=op.axis)


def concat_forward(call: Call) -> Run:
    parts = _parts(call.op, call.y, [x.shape[call.op.axis] for x in call.x])
    pairs = list(zip(parts, call.x, strict=True))

    def run() -> None:
        for part, x in pairs:
            np.copyto(part, x)

    return run


def concat_backward(call: Call) -> Run:
    parts = _parts(call.op, call.dy, [x.shape[call.op.axis] for x in call.x])
    pairs = [(dx, part) for dx, part in zip(call.dx, parts, strict=True) if dx is not None]

    def run() -> None:
        for dx, part in pairs:
            np.copyto(dx, part)

    return run


KERNELS: KernelTable = {
    Concat: Kernel(concat_forward, concat_backward),
}
