"""Reversed axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Moving, Shape, Tensor
from mpibow.graph.kernel import Call, KernelTable
from mpibow.ops.moves import Pairs, reference

__all__ = ["Flip", "flip"]


@dataclass(frozen=True)
class Flip(Moving):
    """y = x with the elements along each of `axes` from the last to the first."""

    axes: tuple[int, ...]
    kind = "flip"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if not self.axes or len(set(self.axes)) < len(self.axes) or not set(self.axes) <= set(range(len(x))):
            raise ShapeError(f"axes {self.axes} must be different ones of the input's {len(x)}, and at least one")
        return x


def flip(x: Tensor, *axes: int, name: str | None = None) -> Tensor:
    """x with its elements in reverse order along `axes`; negative axes count from the last."""
    return x.graph.add(Flip(tuple(axis + len(x.shape) * (axis < 0) for axis in axes)), x, name=name)


# The reference kernels.


def forward(call: Call) -> Pairs:
    return [(call.y, np.flip(call.x0, call.op.axes))]


def backward(call: Call) -> Pairs:
    return [(call.dx0, np.flip(call.dy, call.op.axes))]


KERNELS: KernelTable = {  # not MOVES, which go forwards through memory
    Flip: reference(forward, backward),
}
