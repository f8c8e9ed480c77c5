"""Tensors of given numbers, as tables of positions and masks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mpibow.bounds import AnyFloat
from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Op, Shape, Tensor, current
from mpibow.ops.moves import MoveTable, filled

__all__ = ["Table", "constant"]


@dataclass(frozen=True)
class Table(Op):
    """y = `values`, row by row, as `type`: FLOAT, of the plan's precision, or a NumPy name."""

    shape: Shape
    values: tuple[AnyFloat, ...]
    type: str = FLOAT
    kind = "constant"
    differentiable = None

    def infer(self, *shapes: Shape) -> Shape:
        if min(self.shape, default=1) < 1 or prod(self.shape) != len(self.values):
            raise ShapeError(f"shape {self.shape}: must have as many elements as there are values, {len(self.values)}")
        return self.shape

    def dtype(self, *dtypes: str) -> str:
        return self.type


def constant(values: Any, *, name: str | None = None) -> Tensor:
    """An array's numbers as a tensor of the net that is being built; they are not trained.

    Floats are of the plan's precision, integers int32, and bools stay bools.
    """
    array = np.asarray(values)
    types = {"f": FLOAT, "i": "int32", "u": "int32", "b": "bool"}
    if array.dtype.kind not in types:
        raise ShapeError(f"constant: must be of floats, integers or bools, got {array.dtype}")
    numbers = tuple(AnyFloat(number) for number in array.reshape(-1).astype(float).tolist())
    op = Table(array.shape, numbers, types[array.dtype.kind])
    return current().add(op, name=name)


MOVES: MoveTable = {
    Table: (lambda call: [filled(call.y, np.reshape(call.op.values, call.op.shape))], None),
}
