"""Conversion between types of numbers."""

from mpibow.graph import EVERY, FLOAT, Tensor

from .pointwise import Element, Pointwise

__all__ = ["Cast", "cast", "detach"]


class Cast(Pointwise):
    """y = x as `to`: FLOAT, of the plan's precision, or a NumPy name. It has no gradient."""

    to: str
    kind = "cast"
    differentiable = None
    integers = EVERY
    flat = EVERY

    def dtype(self, *dtypes: str) -> str:
        return self.to

    @staticmethod
    def value(x: Element) -> Element:
        return x


def cast(x: Tensor, dtype: str = FLOAT, *, name: str | None = None) -> Tensor:
    """x as `dtype`: "float" (the run's precision), or a NumPy name such as "int32"; x itself if it has that type.

    No gradient passes from one type to another.
    """
    return x if x.dtype == dtype and name is None else Cast(dtype)(x, name=name)


def detach(x: Tensor, *, name: str | None = None) -> Tensor:
    """x as a constant: the same numbers, through which no gradient passes."""
    return Cast(x.dtype)(x, name=name)


def floats(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All of them of the plan's precision, as PyTorch's arithmetic has integers beside floats."""
    return tuple(map(cast, tensors))
