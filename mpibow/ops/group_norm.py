"""Group normalisation (Wu and He, arXiv:1803.08494)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Array, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec
from mpibow.ops.initialisers import ONE, ZERO

__all__ = ["GroupNorm", "group_norm"]


@dataclass(frozen=True)
class GroupNorm(Op):
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, by sample over a group of neighbour channels.

    The variance is the mean square of the deviations; weight and bias are one a channel (axis 1) and do not decay.
    """

    groups: int
    epsilon: float
    initial: Initialiser = ONE
    initial_bias: Initialiser = ZERO
    kind: ClassVar[str] = "group_norm"
    reads: ClassVar[frozenset[str]] = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) < 2 or self.groups < 1 or x[1] % self.groups:
            raise ShapeError(f"input must be (batch, channels, ...), and groups divide the channels, got {self.groups}")
        if not 0.0 < self.epsilon < math.inf:
            raise ShapeError(f"epsilon must be above 0, got {self.epsilon}")
        return x

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        channels = (shapes[0][1],)
        return {
            "weight": Weight(channels, self.initial, channels[0], channels[0], decay=False),
            "bias": Weight(channels, self.initial_bias, channels[0], channels[0], decay=False),
        }


def group_norm(
    x: Tensor,
    groups: int,
    *,
    epsilon: float = 1e-5,
    initial: Initialiser = ONE,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, c, ...) -> the same shape, normalised per sample over each of `groups` groups of c / groups channels."""
    return x.graph.add(GroupNorm(groups, epsilon, initial, initial_bias), x, name=name)


# The reference kernels: rows (n groups, c / groups positions), and channels (n, c, positions).


def buffers(op: GroupNorm, shapes: Shapes) -> Buffers:
    rows = shapes.y[0] * op.groups
    column, whole = ((rows, 1), FLOAT), (shapes.y, FLOAT)
    moments: dict[str, Spec] = {"mean": column, "inverse": column}
    if not shapes.training:
        return Buffers(forward={**moments, "part": whole})
    return Buffers(saved=moments, forward={"part": whole}, backward={"hat": whole, "part": whole, "column": column})


def _channels(array: Array) -> Array:
    """(n, c, ...) as (n, c, positions)."""
    return array.reshape(*array.shape[:2], -1)


def forward(call: Call) -> Run:
    mean, inverse = call.buffer("mean"), call.buffer("inverse")
    x, y, part = (array.reshape(len(mean), -1) for array in (call.x[0], call.y, call.scratch["part"]))
    channels, weight, bias = _channels(call.y), call.w["weight"][:, None], call.w["bias"][:, None]
    scale, epsilon = y.dtype.type(1.0 / y.shape[1]), y.dtype.type(call.op.epsilon)

    def run() -> None:
        np.sum(x, axis=1, keepdims=True, out=mean)
        np.multiply(mean, scale, out=mean)
        np.subtract(x, mean, out=y)
        np.multiply(y, y, out=part)
        np.sum(part, axis=1, keepdims=True, out=inverse)
        np.multiply(inverse, scale, out=inverse)
        np.add(inverse, epsilon, out=inverse)
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        np.multiply(y, inverse, out=y)
        np.multiply(channels, weight, out=channels)
        np.add(channels, bias, out=channels)

    return run


def backward(call: Call) -> Run:
    mean, inverse, column = call.saved["mean"], call.saved["inverse"], call.scratch["column"]
    whole, work = call.scratch["hat"], call.scratch["part"]
    x, hat, part = (array.reshape(len(mean), -1) for array in (call.x[0], whole, work))
    dy3, hat3, part3 = _channels(call.dy), _channels(whole), _channels(work)
    dx = None if call.dx[0] is None else call.dx[0].reshape(hat.shape)
    weight, dweight, dbias = call.w["weight"][:, None], call.dw["weight"], call.dw["bias"]
    scale = hat.dtype.type(1.0 / hat.shape[1])

    def run() -> None:  # with h the normalised x and g = dy weight: dx = (g - mean(g) - h mean(g h)) inverse
        np.subtract(x, mean, out=hat)
        np.multiply(hat, inverse, out=hat)
        np.multiply(dy3, hat3, out=part3)
        np.sum(part3, axis=(0, 2), out=dweight)
        np.sum(dy3, axis=(0, 2), out=dbias)
        if dx is not None:
            np.multiply(part3, weight, out=part3)
            np.sum(part, axis=1, keepdims=True, out=column)
            np.multiply(column, scale, out=column)
            np.multiply(hat, column, out=hat)
            np.multiply(dy3, weight, out=part3)
            np.sum(part, axis=1, keepdims=True, out=column)
            np.multiply(column, scale, out=column)
            np.subtract(part, column, out=part)
            np.subtract(part, hat, out=part)
            np.multiply(part, inverse, out=dx)

    return run


KERNELS: KernelTable = {
    GroupNorm: Kernel(forward, backward, buffers),
}
