"""Layer normalisation (Ba et al., arXiv:1607.06450)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import ClassVar

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec
from mpibow.ops.axes import Axes, over
from mpibow.ops.initialisers import ONE, ZERO

__all__ = ["LayerNorm", "layer_norm"]


@dataclass(frozen=True)
class LayerNorm(Op):
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, mean and variance over the last `axes` axes.

    The variance is the mean square of the deviations; weight and bias have the shape of these axes and do not decay.
    """

    axes: int
    epsilon: float
    initial: Initialiser = ONE
    initial_bias: Initialiser = ZERO
    kind: ClassVar[str] = "layer_norm"
    reads: ClassVar[frozenset[str]] = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if not 1 <= self.axes < len(x):
            raise ShapeError(f"axes must be between 1 and {len(x) - 1}, all but the batch, got {self.axes}")
        if not 0.0 < self.epsilon < inf:
            raise ShapeError(f"epsilon must be above 0, got {self.epsilon}")
        return x

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        shape = shapes[0][-self.axes :]
        features = prod(shape)
        return {
            "weight": Weight(shape, self.initial, features, features, decay=False),
            "bias": Weight(shape, self.initial_bias, features, features, decay=False),
        }


def layer_norm(
    x: Tensor,
    axes: Axes = 1,
    *,
    epsilon: float = 1e-5,
    initial: Initialiser = ONE,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, ...) -> the same shape, normalised over its last `axes` axes, or over a tuple of axes: (1,) for channels.

    The weight starts as `initial`, the bias as `initial_bias`; both have the shape of these axes.
    """
    return over(x, axes, lambda x, n: x.graph.add(LayerNorm(n, epsilon, initial, initial_bias), x, name=name))


# The reference kernels: rows of a matrix (rows, features).


def buffers(op: LayerNorm, shapes: Shapes) -> Buffers:
    features = math.prod(shapes.y[-op.axes :])
    rows = math.prod(shapes.y) // features
    column: Spec = ((rows, 1), FLOAT)
    matrix: Spec = ((rows, features), FLOAT)
    moments: dict[str, Spec] = {"mean": column, "inverse": column}
    if not shapes.training:
        return Buffers(forward={**moments, "part": matrix})
    return Buffers(saved=moments, forward={"part": matrix}, backward={"hat": matrix, "part": matrix, "column": column})


def forward(call: Call) -> Run:
    mean, inverse, part = call.buffer("mean"), call.buffer("inverse"), call.scratch["part"]
    x, y = call.x[0].reshape(part.shape), call.y.reshape(part.shape)
    weight, bias = call.w["weight"].reshape(-1), call.w["bias"].reshape(-1)
    scale, epsilon = y.dtype.type(1.0 / part.shape[1]), y.dtype.type(call.op.epsilon)

    def run() -> None:
        np.sum(x, axis=1, keepdims=True, out=mean)
        np.multiply(mean, scale, out=mean)
        np.subtract(x, mean, out=y)
        np.multiply(y, y, out=part)
        np.sum(part, axis=1, keepdims=True, out=inverse)
        np.multiply(inverse, scale, out=inverse)
        np.add(inverse, epsilon, out=inverse)
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)  # 1 / the standard deviation
        np.multiply(y, inverse, out=y)
        np.multiply(y, weight, out=y)
        np.add(y, bias, out=y)

    return run


def backward(call: Call) -> Run:
    mean, inverse, hat, part = call.saved["mean"], call.saved["inverse"], call.scratch["hat"], call.scratch["part"]
    x, dy, column = call.x[0].reshape(hat.shape), call.dy.reshape(hat.shape), call.scratch["column"]
    dx = None if call.dx[0] is None else call.dx[0].reshape(hat.shape)
    weight, dweight, dbias = (array.reshape(-1) for array in (call.w["weight"], call.dw["weight"], call.dw["bias"]))
    scale = dy.dtype.type(1.0 / hat.shape[1])

    def run() -> None:  # with h the normalised x and g = dy weight: dx = (g - mean(g) - h mean(g h)) inverse
        np.subtract(x, mean, out=hat)
        np.multiply(hat, inverse, out=hat)
        np.multiply(dy, hat, out=part)
        np.sum(part, axis=0, out=dweight)
        np.sum(dy, axis=0, out=dbias)
        if dx is not None:
            np.multiply(part, weight, out=part)
            np.sum(part, axis=1, keepdims=True, out=column)
            np.multiply(column, scale, out=column)
            np.multiply(hat, column, out=hat)
            np.multiply(dy, weight, out=part)
            np.sum(part, axis=1, keepdims=True, out=column)
            np.multiply(column, scale, out=column)
            np.subtract(part, column, out=part)
            np.subtract(part, hat, out=part)
            np.multiply(part, inverse, out=dx)

    return run


KERNELS: KernelTable = {
    LayerNorm: Kernel(forward, backward, buffers),
}
