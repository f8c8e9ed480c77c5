"""Reversed axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Array, Moving, Shape, Tensor
from mpibow.graph.kernel import Call, Kernel, KernelTable, Run

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


def _copy(op: Flip, source: Array, target: Array) -> Run:
    flipped = np.flip(source, op.axes)
    return lambda: np.copyto(target, flipped)


def forward(call: Call) -> Run:
    return _copy(call.op, call.x[0], call.y)


def backward(call: Call) -> Run:
    return _copy(call.op, call.dy, call.dx0)


KERNELS: KernelTable = {
    Flip: Kernel(forward, backward),
}
