"""The meaning of `+ - * / ** @`, comparisons, indices and loops for tensors.

The operators package imports this one, so the operators behind signs are looked up on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from .graph import Tensor


Function = TypeVar("Function", bound=Callable[..., object])


def _apply(function: str, *arguments: object) -> Tensor:
    """`function` is one of a module of the operators package: slice.sliced."""
    module, _, name = function.partition(".")
    operator: Callable[..., Tensor] = getattr(import_module(f"mpibow.ops.{module}"), name)
    return operator(*arguments)


def named(function: Function, name: str) -> Function:
    """`function`, made by another, as help and tracebacks name it."""
    function.__qualname__ = name
    function.__name__ = name.rpartition(".")[2]
    return function


def _sign(name: str, operation: str, sign: str) -> Callable[[Infix, object], Tensor]:
    """The method `name` of a sign between a tensor and another, or a number."""

    def method(self: Infix, other: object) -> Tensor:
        if not isinstance(other, Infix | Real) or isinstance(other, bool):
            raise TypeError(f"{self.name} {sign} {type(other).__name__}: the other must be a tensor or a number")
        return _apply(operation, self, other if isinstance(other, Infix) else float(other))

    return named(method, f"Infix.{name}")


class Infix:
    """The operators of Tensor, as in NumPy and PyTorch."""

    name: str
    shape: tuple[int, ...]
    __array_ufunc__ = None  # so that NumPy's numbers leave it to these methods
    __hash__ = object.__hash__

    __add__ = __radd__ = _sign("__add__", "arithmetic.plus", "+")
    __sub__ = _sign("__sub__", "arithmetic.minus", "-")
    __rsub__ = _sign("__rsub__", "arithmetic.from_number", "-")
    __mul__ = __rmul__ = _sign("__mul__", "arithmetic.times", "*")
    __truediv__ = _sign("__truediv__", "arithmetic.over", "/")
    __rtruediv__ = _sign("__rtruediv__", "arithmetic.number_over", "/")
    __pow__ = _sign("__pow__", "arithmetic.power", "**")
    __lt__ = _sign("__lt__", "choose.lt", "<")
    __le__ = _sign("__le__", "choose.le", "<=")
    __gt__ = _sign("__gt__", "choose.gt", ">")
    __ge__ = _sign("__ge__", "choose.ge", ">=")
    _equal = _sign("_equal", "choose.eq", "==")
    _unequal = _sign("_unequal", "choose.ne", "!=")

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._equal(other) if isinstance(other, Infix | Real) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._unequal(other) if isinstance(other, Infix | Real) else NotImplemented

    def __neg__(self) -> Tensor:
        return self * -1.0

    def __abs__(self) -> Tensor:
        return _apply("elementary.abs", self)

    def __matmul__(self, other: Tensor) -> Tensor:
        if not isinstance(other, Infix):
            raise TypeError(f"{self.name} @ {type(other).__name__}: the other must be a tensor")
        return _apply("matmul.matmul", self, other)

    def __getitem__(self, index: object) -> Tensor:
        return _apply("slice.sliced", self, index)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self.name}: has no axes, so no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self.name}: a net's tensor has no truth value; choose by mb.where, compare objects by `is`")
