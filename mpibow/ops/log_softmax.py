"""The logarithm of softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibow.graph.graph import FLOAT, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec
from mpibow.ops.softmax import Softmax

__all__ = ["LogSoftmax", "log_softmax"]


@dataclass(frozen=True)
class LogSoftmax(Softmax):
    """y = x - log(the sum of exp(x) along `axis`)."""

    kind = "log_softmax"


def log_softmax(x: Tensor, axis: int = 1, *, name: str | None = None) -> Tensor:
    """x - log(sum(exp(x))) along `axis`, by default 1, classes or channels; a negative axis counts from the last."""
    return x.graph.add(LogSoftmax(axis + len(x.shape) * (axis < 0)), x, name=name)


# The reference kernels.


def buffers(op: LogSoftmax, shapes: Shapes) -> Buffers:
    column: Spec = (tuple(1 if i == op.axis else n for i, n in enumerate(shapes.y)), FLOAT)
    part: Spec = (shapes.y, FLOAT)
    return Buffers(forward={"column": column, "part": part}, backward={"column": column, "part": part})


def forward(call: Call) -> Run:
    x, y, column, part, axis = call.x[0], call.y, call.scratch["column"], call.scratch["part"], call.op.axis

    def run() -> None:
        nonlocal y
        np.max(x, axis=axis, keepdims=True, out=column)
        np.subtract(x, column, out=y)
        np.exp(y, out=part)
        np.sum(part, axis=axis, keepdims=True, out=column)
        np.log(column, out=column)
        y -= column

    return run


def backward(call: Call) -> Run:
    y, dy, dx = call.y, call.dy, call.dx[0]
    part, column, axis = call.scratch["part"], call.scratch["column"], call.op.axis

    def run() -> None:  # dy - softmax sum(dy)
        nonlocal part
        np.sum(dy, axis=axis, keepdims=True, out=column)
        np.exp(y, out=part)
        part *= column
        np.subtract(dy, part, out=dx)

    return run


KERNELS: KernelTable = {
    LogSoftmax: Kernel(forward, backward, buffers),
}
