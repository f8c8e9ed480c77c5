"""Other shapes of the same numbers: reshape and stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mpibow.errors import ShapeError
from mpibow.graph.graph import Moving, Shape, Tensor
from mpibow.ops.concat import concat

__all__ = ["View", "reshape", "stack"]


@dataclass(frozen=True)
class View(Moving):
    """x under another shape of as many elements. No kernel runs."""

    shape: Shape
    kind = "view"

    def infer(self, *shapes: Shape) -> Shape:
        if prod(shapes[0]) != prod(self.shape):
            raise ShapeError(f"{self.shape} must have as many elements as the input")
        return self.shape

    def is_view(self, training: bool) -> bool:
        return True


def reshape(x: Tensor, shape: Sequence[int], *, name: str | None = None) -> Tensor:
    """x with another `shape` of as many elements; one -1 stands for the extent that fits, as in (-1, 3, 8)."""
    wanted, known = tuple(shape), prod(extent for extent in shape if extent != -1)
    if wanted.count(-1) == 1 and known and prod(x.shape) % known == 0:
        wanted = tuple(prod(x.shape) // known if extent == -1 else extent for extent in wanted)
    if prod(wanted) != prod(x.shape) or min(wanted, default=1) < 1:
        raise ShapeError(
            f"reshape of {x.name} {x.shape}: {tuple(shape)} must have as many elements, and at most one -1"
        )
    return x.graph.add(View(wanted), x, name=name)


def stack(x: Tensor, *others: Tensor, axis: int = 0, name: str | None = None) -> Tensor:
    """Joins tensors of one shape along a new axis, number `axis` of the result; negative: from the last."""
    at = axis + (len(x.shape) + 1) * (axis < 0)
    if not 0 <= at <= len(x.shape) or any(other.shape != x.shape for other in others):
        shapes = ", ".join(str(tensor.shape) for tensor in (x, *others))
        raise ShapeError(f"stack of {shapes}: shapes must be alike, and axis {axis} one of the result's")
    shape = (*x.shape[:at], 1, *x.shape[at:])
    return concat(*(each.graph.add(View(shape), each) for each in (x, *others)), axis=at, name=name)
