"""Softmax along one axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Op, Shape, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec

__all__ = ["Softmax", "softmax"]


@dataclass(frozen=True)
class Softmax(Op):
    """y = exp(x) / (the sum of exp(x) along `axis`)."""

    axis: int
    kind = "softmax"
    reads = frozenset("y")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if not 0 <= self.axis < len(x):
            raise ShapeError(f"axis {self.axis} must be one of the input's {len(x)} axes")
        return x


def softmax(x: Tensor, axis: int = 1, *, name: str | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`, by default 1, classes or channels; a negative axis counts from the last."""
    return x.graph.add(Softmax(axis + len(x.shape) * (axis < 0)), x, name=name)


# The reference kernels.


def softmax_buffers(op: Softmax, shapes: Shapes) -> Buffers:
    column: dict[str, Spec] = {"column": (tuple(1 if i == op.axis else n for i, n in enumerate(shapes.y)), FLOAT)}
    return Buffers(forward=column, backward={**column, "part": (shapes.y, FLOAT)})


def softmax_forward(call: Call) -> Run:
    x, y, column, axis = call.x[0], call.y, call.scratch["column"], call.op.axis

    def run() -> None:
        nonlocal y
        np.max(x, axis=axis, keepdims=True, out=column)
        np.subtract(x, column, out=y)
        np.exp(y, out=y)
        np.sum(y, axis=axis, keepdims=True, out=column)
        y /= column

    return run


def softmax_backward(call: Call) -> Run:
    y, dy, dx = call.y, call.dy, call.dx[0]
    part, column, axis = call.scratch["part"], call.scratch["column"], call.op.axis

    def run() -> None:  # y (dy - sum(dy y))
        np.multiply(dy, y, out=part)
        np.sum(part, axis=axis, keepdims=True, out=column)
        np.subtract(dy, column, out=part)
        np.multiply(part, y, out=dx)

    return run


KERNELS: KernelTable = {
    Softmax: Kernel(softmax_forward, softmax_backward, softmax_buffers),
}
