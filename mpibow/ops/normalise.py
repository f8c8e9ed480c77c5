"""From stored pixels to what a network likes: the graph's first node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor


@dataclass(frozen=True)
class Normalise(Op):
    """y = (x - mean) / std, per channel (axis 1); x may be uint8, y is of the plan's precision. It has no gradient."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    kind: ClassVar[str] = "normalise"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) < 2 or not len(self.mean) == len(self.std) == x[1]:
            raise ShapeError(f"{len(self.mean)} means and {len(self.std)} standard deviations must be one a channel")
        if min(self.std) <= 0:
            raise ShapeError(f"standard deviations must be above 0, got {min(self.std)}")
        return x


def normalise(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...], *, name: str | None = None) -> Tensor:
    """x (n, c, ...) of any dtype -> (x - mean) / std."""
    return x.graph.add(Normalise(tuple(mean), tuple(std)), x, name=name)
