"""Softmax along one axis, and its logarithm."""

import numpy as np

from mpibow.graph import FLOAT, Array, Buffers, Kernel, Shapes, Tensor, runs

from .reshape import AlongAxis, axis_of

__all__ = ["LogSoftmax", "Softmax", "log_softmax", "softmax"]


class Softmax(AlongAxis):
    """y = exp(x) / (the sum of exp(x) along `axis`)."""

    kind = "softmax"
    reads = "y"


class LogSoftmax(Softmax):
    """y = x - log(the sum of exp(x) along `axis`)."""

    kind = "log_softmax"


def softmax(x: Tensor, axis: int = 1, *, name: str | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`, by default 1, classes or channels; a negative axis counts from the last."""
    return Softmax(axis_of(x, axis))(x, name=name)


def log_softmax(x: Tensor, axis: int = 1, *, name: str | None = None) -> Tensor:
    """x - log(sum(exp(x))) along `axis`, by default 1, classes or channels; a negative axis counts from the last."""
    return LogSoftmax(axis_of(x, axis))(x, name=name)


# The reference kernels.


def softmax_buffers(op: Softmax, shapes: Shapes) -> Buffers:
    column = {"column": (tuple(1 if i == op.axis else n for i, n in enumerate(shapes.y)), FLOAT)}
    both = {**column, "part": (shapes.y, FLOAT)}
    return Buffers(forward=both if isinstance(op, LogSoftmax) else column, backward=both)


@runs
def softmax_forward(x: Array, y: Array, column: Array, axis: int) -> None:
    np.max(x, axis=axis, keepdims=True, out=column)
    np.subtract(x, column, out=y)
    np.exp(y, out=y)
    np.sum(y, axis=axis, keepdims=True, out=column)
    y /= column


@runs
def log_forward(x: Array, y: Array, part: Array, column: Array, axis: int) -> None:
    np.max(x, axis=axis, keepdims=True, out=column)
    np.subtract(x, column, out=y)
    np.exp(y, out=part)
    np.sum(part, axis=axis, keepdims=True, out=column)
    np.log(column, out=column)
    y -= column


@runs
def softmax_backward(y: Array, dy: Array, dx: Array, part: Array, column: Array, axis: int) -> None:
    """y (dy - sum(dy y))"""
    np.multiply(dy, y, out=part)
    np.sum(part, axis=axis, keepdims=True, out=column)
    np.subtract(dy, column, out=part)
    np.multiply(part, y, out=dx)


@runs
def log_backward(y: Array, dy: Array, dx: Array, part: Array, column: Array, axis: int) -> None:
    """dy - softmax sum(dy)"""
    np.sum(dy, axis=axis, keepdims=True, out=column)
    np.exp(y, out=part)
    part *= column
    np.subtract(dy, part, out=dx)


KERNELS = {
    LogSoftmax: Kernel(log_forward, log_backward, softmax_buffers),
    Softmax: Kernel(softmax_forward, softmax_backward, softmax_buffers),
}
