"""Root mean square normalisation (Zhang and Sennrich, arXiv:1910.07467)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec
from mpibow.ops.axes import Axes, over
from mpibow.ops.initialisers import ONE

__all__ = ["RmsNorm", "rms_norm"]


@dataclass(frozen=True)
class RmsNorm(Op):
    """y = x / sqrt(mean of x^2 + epsilon) * weight, the mean over the last `axes` axes, whose shape weight has."""

    axes: int
    epsilon: float
    initial: Initialiser = ONE
    kind: ClassVar[str] = "rms_norm"
    reads: ClassVar[frozenset[str]] = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if not 1 <= self.axes < len(x):
            raise ShapeError(f"axes must be between 1 and {len(x) - 1}, all but the batch, got {self.axes}")
        if not 0.0 < self.epsilon < math.inf:
            raise ShapeError(f"epsilon must be above 0, got {self.epsilon}")
        return x

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        shape = shapes[0][-self.axes :]
        features = math.prod(shape)
        return {"weight": Weight(shape, self.initial, features, features, decay=False)}


def rms_norm(
    x: Tensor, axes: Axes = 1, *, epsilon: float = 1e-6, initial: Initialiser = ONE, name: str | None = None
) -> Tensor:
    """x (n, ...) -> the same shape, divided by its root mean square over its last `axes` axes or a tuple of axes."""
    return over(x, axes, lambda x, n: x.graph.add(RmsNorm(n, epsilon, initial), x, name=name))


# The reference kernels: rows of a matrix (rows, features).


def buffers(op: RmsNorm, shapes: Shapes) -> Buffers:
    features = math.prod(shapes.y[-op.axes :])
    rows = math.prod(shapes.y) // features
    column: dict[str, Spec] = {"inverse": ((rows, 1), FLOAT)}
    if not shapes.training:
        return Buffers(forward=column)
    matrix: Spec = ((rows, features), FLOAT)
    return Buffers(saved=column, backward={"hat": matrix, "part": matrix, "column": ((rows, 1), FLOAT)})


def forward(call: Call) -> Run:
    inverse, weight = call.buffer("inverse"), call.w["weight"].reshape(-1)
    x, y = call.x[0].reshape(-1, weight.size), call.y.reshape(-1, weight.size)
    scale, epsilon = y.dtype.type(1.0 / weight.size), y.dtype.type(call.op.epsilon)

    def run() -> None:
        np.multiply(x, x, out=y)
        np.sum(y, axis=1, keepdims=True, out=inverse)
        np.multiply(inverse, scale, out=inverse)
        np.add(inverse, epsilon, out=inverse)
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        np.multiply(x, inverse, out=y)
        np.multiply(y, weight, out=y)

    return run


def backward(call: Call) -> Run:
    inverse, hat, part, column = (
        call.saved["inverse"],
        call.scratch["hat"],
        call.scratch["part"],
        call.scratch["column"],
    )
    x, dy = call.x[0].reshape(hat.shape), call.dy.reshape(hat.shape)
    dx = None if call.dx[0] is None else call.dx[0].reshape(hat.shape)
    weight, dweight = call.w["weight"].reshape(-1), call.dw["weight"].reshape(-1)
    scale = dy.dtype.type(1.0 / weight.size)

    def run() -> None:  # with h = x inverse and g = dy weight: dx = (g - h mean(g h)) inverse
        np.multiply(x, inverse, out=hat)
        np.multiply(dy, hat, out=part)
        np.sum(part, axis=0, out=dweight)
        if dx is not None:
            np.multiply(part, weight, out=part)
            np.sum(part, axis=1, keepdims=True, out=column)
            np.multiply(column, scale, out=column)
            np.multiply(hat, column, out=hat)
            np.multiply(dy, weight, out=part)
            np.subtract(part, hat, out=part)
            np.multiply(part, inverse, out=dx)

    return run


KERNELS: KernelTable = {
    RmsNorm: Kernel(forward, backward, buffers),
}
