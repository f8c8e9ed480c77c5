"""Tensors that a net makes of nothing: a number, a table of numbers, and a weight for use at several places."""

from math import prod

import numpy as np
import numpy.typing as npt

from mpibow.bounds import AnyFloat
from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight, Weights, scope

from .initialisers import ZERO
from .moves import MoveTable, filled

__all__ = ["Arange", "Full", "Parameter", "Table", "arange", "constant", "full", "parameter", "scope"]


class Full(Op):
    """y = `value` everywhere."""

    shape: Shape
    value: AnyFloat
    kind = "full"
    differentiable = None

    def infer(self) -> Shape:
        if min(self.shape, default=1) < 1:
            raise ShapeError(f"shape {self.shape}: every extent must be at least 1")
        return self.shape


class Arange(Op):
    """y = 0, 1, ... below `count`: int32."""

    count: int
    kind = "arange"
    differentiable = None

    def infer(self) -> Shape:
        return (self.count,)

    def dtype(self, *dtypes: str) -> str:
        return "int32"


class Table(Op):
    """y = `values`, row by row, as `type`: FLOAT, of the plan's precision, or a NumPy name."""

    shape: Shape
    values: tuple[AnyFloat, ...]
    type: str = FLOAT
    kind = "constant"
    differentiable = None

    def infer(self) -> Shape:
        if min(self.shape, default=1) < 1 or prod(self.shape) != len(self.values):
            raise ShapeError(f"shape {self.shape}: must have as many elements as there are values, {len(self.values)}")
        return self.shape

    def dtype(self, *dtypes: str) -> str:
        return self.type


class Parameter(Op):
    """y = the weight, a view of where it lies in the replica."""

    shape: Shape
    initial: Initialiser
    decay: bool
    kind = "parameter"
    differentiable = ()

    def infer(self) -> Shape:
        return self.shape

    def weights(self) -> Weights:
        units = self.shape[0] if self.shape else 1
        return {"weight": Weight(self.shape, self.initial, prod(self.shape) // units, units, decay=self.decay)}

    def is_view(self, training: bool) -> bool:
        return True


def _shape(shape: int | Shape) -> Shape:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def full(shape: int | Shape, value: float, *, name: str | None = None) -> Tensor:
    """A tensor (shape) of the net that is being built, `value` everywhere. It is not trained."""
    return Full(_shape(shape), AnyFloat(value))(name=name)


def arange(count: int, *, name: str | None = None) -> Tensor:
    """0, 1, ... below `count`, int32; unlike those of a constant the numbers may be as many as a batch has samples."""
    return Arange(count)(name=name)


def constant(values: npt.ArrayLike, *, name: str | None = None) -> Tensor:
    """An array's numbers as a tensor of the net that is being built; they are not trained.

    Floats are of the plan's precision, integers int32, and bools stay bools.
    """
    array = np.asarray(values)
    types = {"f": FLOAT, "i": "int32", "u": "int32", "b": "bool"}
    if array.dtype.kind not in types:
        raise ShapeError(f"constant: must be of floats, integers or bools, got {array.dtype}")
    if array.dtype.kind in "iu" and array.size and not -(2**31) <= array.min() <= array.max() < 2**31:
        raise ShapeError(f"constant: integers must fit int32, got {array.min()} to {array.max()}")
    numbers = tuple(map(AnyFloat, array.reshape(-1).astype(float).tolist()))
    return Table(array.shape, numbers, types[array.dtype.kind])(name=name)


def parameter(
    shape: int | Shape, *, initial: Initialiser = ZERO, decay: bool = True, name: str | None = None
) -> Tensor:
    """A weight (shape) of the net that is being built; wherever it is used, its gradient is the sum of all uses.

    It starts as `initial`, by default 0; its fan out is the first extent, its fan in the size of the rest. With
    `decay=False` weight decay does not apply to it.
    """
    return Parameter(_shape(shape), initial, decay)(name=name)


MOVES: MoveTable = {
    Arange: (lambda call: [(call.y, np.arange(call.op.count, dtype=call.y.dtype))], None),
    Full: (lambda call: [filled(call.y, call.op.value)], None),
    Parameter: (lambda call: [], lambda call: [(call.dw["weight"], call.dy)]),  # a view: forward is never run
    Table: (lambda call: [filled(call.y, np.reshape(call.op.values, call.op.shape))], None),
}
