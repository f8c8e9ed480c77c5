"""A formula as NumPy's passes over arrays that are there already: it makes no array while it runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from mpibow.formulas import functions

from .tree import Array, Expression, Formula, Name, Number

COMPARISONS: dict[str, np.ufunc] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}
UFUNCS: Mapping[str, np.ufunc] = COMPARISONS | {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "negative": np.negative,
    **{name: call for name in functions.COUNTS if isinstance(call := getattr(np, name, None), np.ufunc)},
}

Operand = str | float | int  # the name of an array or a scalar; a number of Python's own takes the other one's dtype


@dataclass(frozen=True)
class Pass:
    """target <- function(*operands); without a function target <- the first operand, where the second one holds."""

    function: np.ufunc | None
    operands: tuple[Operand, ...]
    target: str


@dataclass(frozen=True)
class Program:
    """Passes that give results of a formula, _y0, _y1 ...; `parts` (of their dtype) and `masks` (bool) are scratch."""

    passes: tuple[Pass, ...]
    parts: tuple[str, ...]
    masks: tuple[str, ...]


def program(formula: Formula, results: Sequence[int]) -> Program:
    """The passes of the named results of a formula. They may write no array that they read."""
    passes = []
    names = dict[str, Operand]()
    numbers = count()
    parts = list[str]()
    masks = list[str]()

    def value(tree: Expression, target: str = "") -> Operand:
        """The name of the tree's value: `target`, if it is given and something is computed."""
        if isinstance(tree, Number):
            return plain(tree.value)
        if isinstance(tree, Name):
            return names.get(tree.name, tree.name)
        operands = tuple(map(value, tree.arguments))
        if not target:
            target = f"_{next(numbers)}"
            (masks if tree.function in COMPARISONS else parts).append(target)
        if tree.function == "where":
            condition, one, other = operands
            passes.extend([Pass(None, (other,), target), Pass(None, (one, condition), target)])
        else:
            passes.append(Pass(UFUNCS[tree.function], operands, target))
        return target

    for name, tree in formula.assignments:
        names[name] = value(tree)
    for i, result in enumerate(results):
        target = f"_y{i}"
        if (found := value(formula.results[result], target)) != target:
            passes.append(Pass(None, (found,), target))
    return Program(tuple(passes), tuple(parts), tuple(masks))


def bind(planned: Program, arrays: Mapping[str, Any]) -> list[Callable[[], object]]:
    """The passes on these arrays, all of one shape, and scalars, by name, as calls.

    NumPy warns of divisions by 0 unless it is set not to.
    """
    return [
        _call(
            each.function, [arrays[one] if isinstance(one, str) else one for one in each.operands], arrays[each.target]
        )
        for each in planned.passes
    ]


def _call(function: np.ufunc | None, operands: list[Any], target: Array) -> Callable[[], object]:
    if function is not None:
        return lambda: function(*operands, out=target)
    source, *mask = operands
    where = mask[0] if mask else True
    return lambda: np.copyto(target, source, where=where, casting="unsafe")


def plain(value: float) -> float | int:
    """A whole number as an integer: integers that are compared with it are not converted."""
    return int(value) if float(value).is_integer() else float(value)
