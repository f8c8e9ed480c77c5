"""Fully connected layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Initialiser, Op, Shape, Tensor, Weight
from mpibow.ops.initialisers import Constant, He


@dataclass(frozen=True)
class Dense(Op):
    """y (n, units) = x (n, features) @ weight.T + bias, weight (units, features)."""

    units: int
    bias: bool
    initial: Initialiser
    kind: ClassVar[str] = "dense"
    reads: ClassVar[frozenset[str]] = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) != 2:
            raise ShapeError("input must be (batch, features); put flatten() in front")
        return (x[0], self.units)

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        features = shapes[0][1]
        weights = {"weight": Weight((self.units, features), self.initial, features, self.units)}
        if self.bias:
            weights["bias"] = Weight((self.units,), Constant(0.0), features, self.units, decay=False)
        return weights


def dense(
    x: Tensor, units: int, *, bias: bool = True, initial: Initialiser | None = None, name: str | None = None
) -> Tensor:
    """x (n, features) -> (n, units). Weights start as `initial` (He), the bias at 0."""
    return x.graph.add(Dense(units, bias, initial or He()), x, name=name)
