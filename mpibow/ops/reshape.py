"""Other shapes of the same numbers: reshape and flatten, views without a kernel."""

from collections.abc import Sequence
from math import prod

from mpibow.errors import ShapeError
from mpibow.graph import Moving, Op, Shape, Tensor

from .pointwise import of_one

__all__ = ["Flatten", "View", "flatten", "reshape"]


def axis_of(x: Tensor, axis: int) -> int:
    """The number of an axis of x from the first; a negative one counts from the last. Raises ShapeError."""
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"axis {axis} must be one of the {x.ndim} of {x.name} {x.shape}")
    return axis % x.ndim


def check_axes(axes: tuple[int, ...], x: Shape) -> None:
    if not axes or len(set(axes)) < len(axes) or not set(axes) <= set(range(len(x))):
        raise ShapeError(f"axes {axes} must be different ones of the input's {len(x)}, and at least one")


class AlongAxis(Op):
    """y has x's shape."""

    axis: int

    def infer(self, x: Shape) -> Shape:
        if not 0 <= self.axis < len(x):
            raise ShapeError(f"axis {self.axis} must be one of the input's {len(x)} axes")
        return x


class _Viewing(Moving):
    """The input's memory under another shape."""

    def is_view(self, training: bool) -> bool:
        return True


class View(_Viewing):
    """x under another shape of as many elements. No kernel runs."""

    shape: Shape
    kind = "view"

    def infer(self, x: Shape) -> Shape:
        if prod(x) != prod(self.shape):
            raise ShapeError(f"{self.shape} must have as many elements as the input")
        return self.shape


class Flatten(_Viewing):
    """x (n, ...) -> (n, everything else). A view: no kernel runs."""

    kind = "flatten"

    def infer(self, x: Shape) -> Shape:
        if len(x) < 2:
            raise ShapeError("input must have a batch axis and at least one more")
        return x[0], prod(x[1:])


def reshape(x: Tensor, shape: Sequence[int], *, name: str | None = None) -> Tensor:
    """x with another `shape` of as many elements; one -1 stands for the extent that fits, as in (-1, 3, 8)."""
    wanted = tuple(shape)
    known = prod(extent for extent in shape if extent != -1)
    if wanted.count(-1) == 1 and known and prod(x.shape) % known == 0:
        wanted = tuple(prod(x.shape) // known if extent == -1 else extent for extent in wanted)
    if prod(wanted) != prod(x.shape) or min(wanted, default=1) < 1:
        raise ShapeError(
            f"reshape of {x.name} {x.shape}: {tuple(shape)} must have as many elements, and at most one -1"
        )
    return View(wanted)(x, name=name)


flatten = of_one(Flatten(), "x (n, ...) -> (n, features).")
