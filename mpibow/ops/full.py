"""Tensors filled with one number."""

from __future__ import annotations

from dataclasses import dataclass

from mpibow.bounds import AnyFloat
from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor, current
from mpibow.ops.moves import MoveTable, filled

__all__ = ["Full", "full"]


@dataclass(frozen=True)
class Full(Op):
    """y = `value` everywhere."""

    shape: Shape
    value: AnyFloat
    kind = "full"
    differentiable = None

    def infer(self, *shapes: Shape) -> Shape:
        if min(self.shape, default=1) < 1:
            raise ShapeError(f"shape {self.shape}: every extent must be at least 1")
        return self.shape


def full(shape: int | tuple[int, ...], value: float, *, name: str | None = None) -> Tensor:
    """A tensor (shape) of the net that is being built, `value` everywhere. It is not trained."""
    return current().add(Full((shape,) if isinstance(shape, int) else tuple(shape), AnyFloat(value)), name=name)


MOVES: MoveTable = {
    Full: (lambda call: [filled(call.y, call.op.value)], None),
}
