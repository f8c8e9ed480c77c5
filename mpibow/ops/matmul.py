"""Products of matrices, of one or of many side by side."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Array, Op, Shape, Tensor
from mpibow.graph.kernel import Call, Kernel, Run
from mpibow.ops.arithmetic import expand
from mpibow.ops.reshape import reshape

__all__ = ["Matmul", "matmul"]


@dataclass(frozen=True)
class Matmul(Op):
    """y[..., i, j] = sum over k of a[..., i, k] b[..., k, j]: all axes in front alike, or b of two axes only."""

    kind = "matmul"
    reads = frozenset("x")
    differentiable = (0, 1)

    def infer(self, *shapes: Shape) -> Shape:
        a, b = shapes
        if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
            raise ShapeError("inputs must be (..., rows, inner) and (..., inner, columns)")
        if len(b) > 2 and a[:-2] != b[:-2]:
            raise ShapeError("all axes in front of the last two must be alike")
        return (*a[:-1], b[-1])


def matmul(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """a (..., m, k), b (..., k, n) -> (..., m, n); `a @ b` as well. Axes in front of the last two are broadcast.

    A vector (k,) is a row on the left and a column on the right; the result does not have its axis.
    """
    if len(a.shape) == 1:
        y = matmul(reshape(a, (1, -1)), b)
        return reshape(y, y.shape[:-1] if len(b.shape) == 1 else (*y.shape[:-2], y.shape[-1]), name=name)
    if len(b.shape) == 1:
        y = matmul(a, reshape(b, (-1, 1)))
        return reshape(y, y.shape[:-1], name=name)
    if len(a.shape) < 2 or len(b.shape) < 2 or (len(b.shape) == 2):
        return a.graph.add(Matmul(), a, b, name=name)
    try:
        front = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul of {a.name} {a.shape}, {b.name} {b.shape}: cannot be broadcast") from None
    a, b = expand(a, (*front, *a.shape[-2:])), expand(b, (*front, *b.shape[-2:]))
    return a.graph.add(Matmul(), a, b, name=name)


# The reference kernels.


def _rows(array: Array) -> Array:
    """(..., m, k) as one matrix."""
    return array.reshape(prod(array.shape[:-1]), array.shape[-1])


def forward(call: Call) -> Run:
    (a, b), y = call.x, call.y
    if b.ndim == 2:
        a, y = _rows(a), _rows(y)
    return lambda: np.matmul(a, b, out=y)


def backward(call: Call) -> Run:
    (a, b), dy, (da, db) = call.x, call.dy, call.dx
    if b.ndim == 2:
        a, dy = _rows(a), _rows(dy)
        da = None if da is None else _rows(da)
    a_t, b_t = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2)

    def run() -> None:
        if da is not None:
            np.matmul(dy, b_t, out=da)
        if db is not None:
            np.matmul(a_t, dy, out=db)

    return run


KERNELS = {
    Matmul: Kernel(forward, backward),
}
