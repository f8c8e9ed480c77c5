"""Softmax along one axis, and its logarithm."""

from __future__ import annotations

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Op, Shape, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
from mpibow.ops.reshape import axis_of

__all__ = ["LogSoftmax", "Softmax", "log_softmax", "softmax"]


class Softmax(Op):
    """y = exp(x) / (the sum of exp(x) along `axis`)."""

    axis: int
    kind = "softmax"
    reads = frozenset("y")

    def infer(self, x: Shape) -> Shape:
        if not 0 <= self.axis < len(x):
            raise ShapeError(f"axis {self.axis} must be one of the input's {len(x)} axes")
        return x


class LogSoftmax(Softmax):
    """y = x - log(the sum of exp(x) along `axis`)."""

    kind = "log_softmax"


def softmax(x: Tensor, axis: int = 1, *, name: str | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`, by default 1, classes or channels; a negative axis counts from the last."""
    return x.graph.add(Softmax(axis_of(x, axis)), x, name=name)


def log_softmax(x: Tensor, axis: int = 1, *, name: str | None = None) -> Tensor:
    """x - log(sum(exp(x))) along `axis`, by default 1, classes or channels; a negative axis counts from the last."""
    return x.graph.add(LogSoftmax(axis_of(x, axis)), x, name=name)


# The reference kernels.


def softmax_buffers(op: Softmax, shapes: Shapes) -> Buffers:
    column = {"column": (tuple(1 if i == op.axis else n for i, n in enumerate(shapes.y)), FLOAT)}
    both = {**column, "part": (shapes.y, FLOAT)}
    return Buffers(forward=both if isinstance(op, LogSoftmax) else column, backward=both)


def softmax_forward(call: Call) -> Run:
    x, y, column, axis = call.x0, call.y, call.scratch["column"], call.op.axis
    log, part = "part" in call.scratch, call.scratch.get("part", y)

    def run() -> None:
        nonlocal y
        np.max(x, axis=axis, keepdims=True, out=column)
        np.subtract(x, column, out=y)
        np.exp(y, out=part)
        np.sum(part, axis=axis, keepdims=True, out=column)
        if log:
            np.log(column, out=column)
            y -= column
        else:
            y /= column

    return run


def softmax_backward(call: Call) -> Run:
    y, dy, dx = call.y, call.dy, call.dx0
    part, column, axis = call.scratch["part"], call.scratch["column"], call.op.axis

    def run() -> None:  # y (dy - sum(dy y))
        np.multiply(dy, y, out=part)
        np.sum(part, axis=axis, keepdims=True, out=column)
        np.subtract(dy, column, out=part)
        np.multiply(part, y, out=dx)

    return run


def log_backward(call: Call) -> Run:
    y, dy, dx = call.y, call.dy, call.dx0
    part, column, axis = call.scratch["part"], call.scratch["column"], call.op.axis

    def run() -> None:  # dy - softmax sum(dy)
        nonlocal part
        np.sum(dy, axis=axis, keepdims=True, out=column)
        np.exp(y, out=part)
        part *= column
        np.subtract(dy, part, out=dx)

    return run


KERNELS = {
    LogSoftmax: Kernel(softmax_forward, log_backward, softmax_buffers),
    Softmax: Kernel(softmax_forward, softmax_backward, softmax_buffers),
}
