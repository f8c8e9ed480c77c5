"""Comparison and where."""

from typing import Protocol

from mpibow.errors import ShapeError
from mpibow.formulas import Apply, Formula, Name, Number, functions as f
from mpibow.graph import EVERY, Shape, Tensor
from mpibow.graph.infix import named

from .arithmetic import broadcast
from .cast import floats
from .leaves import full
from .pointwise import Element, Pointwise

__all__ = ["Compare", "Where", "eq", "ge", "gt", "le", "lt", "ne", "where"]

NAMES = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal", "!=": "not_equal"}


class Compare(Pointwise):
    """y = whether x0 `sign` x1, or x0 `sign` number where there is no x1: bool."""

    sign: str
    number: float | None = None
    kind = "compare"
    differentiable = None
    integers = EVERY
    flat = EVERY

    def infer(self, *shapes: Shape) -> Shape:
        if self.sign not in NAMES or len(shapes) != 1 + (self.number is None) or len(set(shapes)) != 1:
            raise ShapeError(f"there must be two inputs of one shape, or one and a number, and a sign of {[*NAMES]}")
        return shapes[0]

    def dtype(self, *dtypes: str) -> str:
        return "bool"

    def half(self, backward: bool) -> Formula:
        alone = self.number is not None
        arrays, scalars, name = (("x",), ("number",), "_number") if alone else (("x0", "x1"), (), "")
        value = Apply("where", (Apply(self.sign, tuple(map(Name, arrays + scalars))), Number(1.0), Number(0.0)))
        return Formula(NAMES[self.sign] + name, arrays, scalars, (), (value,))


class Where(Pointwise):
    """y = x1 where x0 is not 0, else x2."""

    kind = "where"
    differentiable = (1, 2)
    integers = EVERY
    flat = (0,)

    def infer(self, *shapes: Shape) -> Shape:
        if len(shapes) != 3 or len(set(shapes)) != 1:
            raise ShapeError("there must be three inputs of one shape")
        return shapes[0]

    def dtype(self, *dtypes: str) -> str:
        return dtypes[1]

    @staticmethod
    def value(x0: Element, x1: Element, x2: Element) -> Element:
        return f.where(x0 != 0, x1, x2)

    @staticmethod
    def gradient(x0: Element, dy: Element) -> Element:
        return f.where(x0 != 0, dy, 0), f.where(x0 != 0, 0, dy)


class Comparison(Protocol):
    """A function of two tensors, or of one and a number."""

    def __call__(self, x: Tensor, y: Tensor | float, *, name: str | None = None) -> Tensor: ...


def _comparison(name: str, sign: str) -> Comparison:
    def function(x: Tensor, y: Tensor | float, *, name: str | None = None) -> Tensor:
        if isinstance(y, Tensor):
            both = (x, y) if x.dtype == y.dtype else floats(x, y)
            return Compare(sign)(*broadcast(*both), name=name)
        return Compare(sign, float(y))(x, name=name)

    function.__doc__ = f"Whether x {sign} y, element by element, broadcast: bool."
    return named(function, name)


lt = _comparison("lt", "<")
le = _comparison("le", "<=")
gt = _comparison("gt", ">")
ge = _comparison("ge", ">=")
eq = _comparison("eq", "==")
ne = _comparison("ne", "!=")


def where(condition: Tensor, x: Tensor | float, y: Tensor | float, *, name: str | None = None) -> Tensor:
    """x if condition is not 0, else y, by element, broadcast; x and y are tensors or numbers."""
    given = [each if isinstance(each, Tensor) else full((1,) * condition.ndim, each) for each in (x, y)]
    both = given if given[0].dtype == given[1].dtype else floats(*given)
    return Where()(*broadcast(condition, *both), name=name)
