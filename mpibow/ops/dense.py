"""Fully connected layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Array, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Call, Kernel, Run
from mpibow.ops.initialisers import ZERO, He

__all__ = ["Dense", "dense"]


@dataclass(frozen=True)
class Dense(Op):
    """y (n, ..., units) = x (n, ..., features) @ weight.T + bias, weight (units, features)."""

    units: int
    bias: bool
    initial: Initialiser
    initial_bias: Initialiser = ZERO
    kind = "dense"
    reads = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) < 2:
            raise ShapeError("input must be (batch, ..., features)")
        return (*x[:-1], self.units)

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        features = shapes[0][-1]
        weights = {"weight": Weight((self.units, features), self.initial, features, self.units)}
        if self.bias:
            weights["bias"] = Weight((self.units,), self.initial_bias, features, self.units, decay=False)
        return weights


def dense(
    x: Tensor,
    units: int,
    *,
    bias: bool = True,
    initial: Initialiser | None = None,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, ..., features) -> (n, ..., units). Weights start as `initial` (He), the bias as `initial_bias` (0)."""
    return x.graph.add(Dense(units, bias, initial or He(), initial_bias), x, name=name)


# The reference kernels: three matrix products, of all axes in front as one.


def rows(array: Array) -> Array:
    """(..., features) as one matrix."""
    return array.reshape(-1, array.shape[-1])


def forward(call: Call) -> Run:
    x, y, weight, bias = rows(call.x0), rows(call.y), call.w["weight"].T, call.w.get("bias")

    def run() -> None:
        nonlocal y
        np.matmul(x, weight, out=y)
        if bias is not None:
            y += bias

    return run


def backward(call: Call) -> Run:
    x, dy, dx = rows(call.x0), rows(call.dy), None if call.dx[0] is None else rows(call.dx[0])
    weight, dweight, dbias = call.w["weight"], call.dw.get("weight"), call.dw.get("bias")

    def run() -> None:
        if dweight is not None:
            np.matmul(dy.T, x, out=dweight)
        if dbias is not None:
            np.sum(dy, axis=0, out=dbias)
        if dx is not None:
            np.matmul(dy, weight, out=dx)

    return run


KERNELS = {
    Dense: Kernel(forward, backward, inputs_alone=True),
}
