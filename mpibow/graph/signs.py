"""The meaning of `+ - * / ** @`, comparisons, indices and loops for tensors.

The operators package imports this one, so the operators behind signs are looked up on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from mpibow.graph.graph import Tensor


def _made(module: str, function: str, *arguments: Any) -> Any:
    return getattr(import_module(f"mpibow.ops.{module}"), function)(*arguments)


class Signs:
    """The operators of Tensor, as in NumPy and PyTorch."""

    name: str
    shape: tuple[int, ...]
    __array_ufunc__ = None  # so that NumPy's numbers leave it to these methods
    __hash__ = object.__hash__

    def __add__(self, other: Tensor | float) -> Tensor:
        return self._by("arithmetic", "plus", "+", other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self._by("arithmetic", "minus", "-", other)

    def __rsub__(self, other: float) -> Tensor:
        return self._by("arithmetic", "from_number", "-", other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self._by("arithmetic", "times", "*", other)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self._by("arithmetic", "over", "/", other)

    def __rtruediv__(self, other: float) -> Tensor:
        return self._by("arithmetic", "number_over", "/", other)

    def __pow__(self, exponent: float) -> Tensor:
        return self._by("arithmetic", "power", "**", exponent)

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Tensor | float) -> Tensor:
        return self._by("choose", "lt", "<", other)

    def __le__(self, other: Tensor | float) -> Tensor:
        return self._by("choose", "le", "<=", other)

    def __gt__(self, other: Tensor | float) -> Tensor:
        return self._by("choose", "gt", ">", other)

    def __ge__(self, other: Tensor | float) -> Tensor:
        return self._by("choose", "ge", ">=", other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._by("choose", "eq", "==", other) if isinstance(other, Signs | Real) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._by("choose", "ne", "!=", other) if isinstance(other, Signs | Real) else NotImplemented

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

    def _by(self, module: str, operation: str, sign: str, other: object) -> Tensor:
        if not isinstance(other, Signs | Real) or isinstance(other, bool):
            raise TypeError(f"{self.name} {sign} {type(other).__name__}: the other must be a tensor or a number")
        made: Tensor = _made(module, operation, self, other if isinstance(other, Signs) else float(other))
        return made
