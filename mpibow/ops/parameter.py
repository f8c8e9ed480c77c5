"""A weight that does not belong to a layer, for use at several places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from mpibow.graph.graph import Initialiser, Op, Shape, Tensor, Weight, current, scope
from mpibow.ops.initialisers import ZERO
from mpibow.ops.moves import MoveTable

__all__ = ["Parameter", "parameter", "scope"]


@dataclass(frozen=True)
class Parameter(Op):
    """y = the weight, a view of where it lies in the replica."""

    shape: Shape
    initial: Initialiser
    decay: bool
    kind = "parameter"
    differentiable = ()

    def infer(self, *shapes: Shape) -> Shape:
        return self.shape

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        units, size = self.shape[0] if self.shape else 1, prod(self.shape)
        return {"weight": Weight(self.shape, self.initial, size // units, units, decay=self.decay)}

    def is_view(self, training: bool) -> bool:
        return True


def parameter(
    shape: int | tuple[int, ...], *, initial: Initialiser = ZERO, decay: bool = True, name: str | None = None
) -> Tensor:
    """A weight (shape) of the net that is being built; wherever it is used, its gradient is the sum of all uses.

    It starts as `initial`, by default 0; its fan out is the first extent, its fan in the size of the rest. With
    `decay=False` weight decay does not apply to it.
    """
    op = Parameter((shape,) if isinstance(shape, int) else tuple(shape), initial, decay)
    return current().add(op, name=name)


MOVES: MoveTable = {
    Parameter: (lambda call: [], lambda call: [(call.dw["weight"], call.dy)]),  # a view: forward is never run
}
