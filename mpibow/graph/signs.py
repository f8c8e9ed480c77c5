"""The meaning of `+ - * / ** @`, comparisons, indices and loops for tensors.

The operators package imports this one, so the operators behind signs are looked up on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from mpibow.graph.graph import Tensor


def _made(module: str, function: str, *arguments: Any) -> Any:
    return getattr(import_module(f"mpibow.ops.{module}"), function)(*arguments)


def _sign(module: str, operation: str, sign: str) -> Callable[[Any, Any], Tensor]:
    """The method of a sign between a tensor and another, or a number."""

    def method(self: Signs, other: object) -> Tensor:
        if not isinstance(other, Signs | Real) or isinstance(other, bool):
            raise TypeError(f"{self.name} {sign} {type(other).__name__}: the other must be a tensor or a number")
        made: Tensor = _made(module, operation, self, other if isinstance(other, Signs) else float(other))
        return made

    return method


class Signs:
    """The operators of Tensor, as in NumPy and PyTorch."""

    name: str
    shape: tuple[int, ...]
    __array_ufunc__ = None  # so that NumPy's numbers leave it to these methods
    __hash__ = object.__hash__

    __add__ = __radd__ = _sign("arithmetic", "plus", "+")
    __sub__ = _sign("arithmetic", "minus", "-")
    __rsub__ = _sign("arithmetic", "from_number", "-")
    __mul__ = __rmul__ = _sign("arithmetic", "times", "*")
    __truediv__ = _sign("arithmetic", "over", "/")
    __rtruediv__ = _sign("arithmetic", "number_over", "/")
    __pow__ = _sign("arithmetic", "power", "**")
    __lt__ = _sign("choose", "lt", "<")
    __le__ = _sign("choose", "le", "<=")
    __gt__ = _sign("choose", "gt", ">")
    __ge__ = _sign("choose", "ge", ">=")
    _equal = _sign("choose", "eq", "==")
    _unequal = _sign("choose", "ne", "!=")

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._equal(other) if isinstance(other, Signs | Real) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._unequal(other) if isinstance(other, Signs | Real) else NotImplemented

    def __neg__(self) -> Tensor:
        return self * -1.0

    def __abs__(self) -> Tensor:
        found: Tensor = _made("unary", "abs", self)
        return found

    def __matmul__(self, other: Tensor) -> Tensor:
        if not isinstance(other, Signs):
            raise TypeError(f"{self.name} @ {type(other).__name__}: the other must be a tensor")
        product: Tensor = _made("matmul", "matmul", self, other)
        return product

    def __getitem__(self, index: object) -> Tensor:
        part: Tensor = _made("slice", "sliced", self, index)
        return part

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self.name}: has no axes, so no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self.name}: a net's tensor has no truth value; choose by mb.where, compare objects by `is`")
