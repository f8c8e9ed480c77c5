"""Axes in another order: permute, transpose, and flip, which reverses them."""

from collections.abc import Sequence

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import KernelTable, Moving, Shape, Tensor

from .moves import MoveTable, reference
from .reshape import axis_of, check_axes

__all__ = ["Flip", "Permute", "flip", "permute", "transpose"]


class Permute(Moving):
    """y's axis number i is x's axis number axes[i]."""

    axes: tuple[int, ...]
    kind = "permute"

    def infer(self, x: Shape) -> Shape:
        if sorted(self.axes) != list(range(len(x))):
            raise ShapeError(f"axes {self.axes} must be each of the input's {len(x)} once")
        return tuple(x[axis] for axis in self.axes)


def permute(x: Tensor, *axes: int | Sequence[int], name: str | None = None) -> Tensor:
    """x with its axes in the order `axes`, numbers or one tuple; negative numbers count from the last."""
    order = (axis_of(x, axis) for given in axes for axis in ((given,) if isinstance(given, int) else given))
    return Permute(tuple(order))(x, name=name)


def transpose(x: Tensor, first: int = -2, second: int = -1, *, name: str | None = None) -> Tensor:
    """x with two axes exchanged, by default the last two."""
    axes = list(range(x.ndim))
    if not all(-len(axes) <= axis < len(axes) for axis in (first, second)):
        raise ShapeError(f"transpose of {x.name} {x.shape}: axes {first} and {second} must be two of its {len(axes)}")
    axes[first], axes[second] = axes[second], axes[first]
    return permute(x, *axes, name=name)


class Flip(Moving):
    """y = x with the elements along each of `axes` from the last to the first."""

    axes: tuple[int, ...]
    kind = "flip"

    def infer(self, x: Shape) -> Shape:
        check_axes(self.axes, x)
        return x


def flip(x: Tensor, *axes: int, name: str | None = None) -> Tensor:
    """x with its elements in reverse order along `axes`; negative axes count from the last."""
    return Flip(tuple(axis_of(x, axis) for axis in axes))(x, name=name)


# The reference kernels.


MOVES: MoveTable = {
    Permute: (
        lambda call: [(call.y, call.x0.transpose(call.op.axes))],
        lambda call: [(call.dx0.transpose(call.op.axes), call.dy)],
    )
}


KERNELS: KernelTable = {  # not MOVES, which go forwards through memory
    Flip: reference(
        lambda call: [(call.y, np.flip(call.x0, call.op.axes))],
        lambda call: [(call.dx0, np.flip(call.dy, call.op.axes))],
    )
}
