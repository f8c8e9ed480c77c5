"""A formula as NumPy's passes over arrays that are there already: it makes no array while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mpibow.formulas.formula import Array, Expression, Formula, Name, Number

UFUNCS: Mapping[str, np.ufunc] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "negative": np.negative,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "log1p": np.log1p, "power": np.power, "tanh": np.tanh,
    "sign": np.sign, "abs": np.absolute, "minimum": np.minimum, "maximum": np.maximum,
}  # fmt: skip


class Place(NamedTuple):
    """Array number `number` of a `kind`: array, scalar, result, part (of the results' dtype) or mask (bool)."""

    kind: str
    number: int


Operand = Place | float | int  # a number of Python's own takes the dtype of the other operand


@dataclass(frozen=True)
class Pass:
    """target <- function(*operands); without a function target <- the first operand, where the second one holds."""

    function: np.ufunc | None
    operands: tuple[Operand, ...]
    target: Place


@dataclass(frozen=True)
class Program:
    """The passes that give `results` of a formula's, and how many parts and masks they need."""

    passes: tuple[Pass, ...]
    parts: int
    masks: int


def program(formula: Formula, results: Sequence[int]) -> Program:
    """The passes of the named results of a formula. They may write no array that they read."""
    return _Planner(formula).plan(results)


def bind(
    planned: Program, arrays: Sequence[Array], scalars: Sequence[float], results: Sequence[Array],
    parts: Sequence[Array], masks: Sequence[Array],
) -> list[Callable[[], Any]]:  # fmt: skip
    """The passes on these arrays, all of one shape, as calls. NumPy warns of divisions by 0 unless it is set not to."""
    of: dict[str, Sequence[Any]] = {
        "array": arrays, "scalar": list(map(plain, scalars)), "result": results, "part": parts, "mask": masks,
    }  # fmt: skip

    def found(operand: Operand) -> Any:
        return of[operand.kind][operand.number] if isinstance(operand, Place) else operand

    return [_call(each.function, [found(one) for one in each.operands], found(each.target)) for each in planned.passes]


def _call(function: np.ufunc | None, operands: list[Any], target: Array) -> Callable[[], Any]:
    if function is not None:
        return lambda: function(*operands, out=target)
    source, *mask = operands
    if mask:
        return lambda: np.copyto(target, source, where=mask[0], casting="unsafe")
    return lambda: np.copyto(target, source, casting="unsafe")


def plain(value: float) -> float | int:
    """A whole number as an integer: integers that are compared with it are not converted."""
    return int(value) if float(value).is_integer() else float(value)


class _Planner:
    def __init__(self, formula: Formula) -> None:
        self._formula = formula
        self._names: dict[str, Operand] = {name: Place("array", i) for i, name in enumerate(formula.arrays)}
        self._names |= {name: Place("scalar", i) for i, name in enumerate(formula.scalars)}
        self._passes: list[Pass] = []
        self._free: dict[str, list[int]] = {"part": [], "mask": []}
        self._made = {"part": 0, "mask": 0}
        self._named: set[Operand] = set()

    def plan(self, results: Sequence[int]) -> Program:
        for name, tree in self._formula.assignments:
            self._names[name] = value = self._value(tree)
            self._named.add(value)
        for i, result in enumerate(results):
            target = Place("result", i)
            value = self._value(self._formula.results[result], target)
            if value != target:
                self._passes.append(Pass(None, (value,), target))
                self._release(value)
        return Program(tuple(self._passes), self._made["part"], self._made["mask"])

    def _value(self, tree: Expression, target: Place | None = None) -> Operand:
        """The place of the tree's value: `target`, if it is given and something is computed."""
        if isinstance(tree, Number):
            return plain(tree.value)
        if isinstance(tree, Name):
            return self._names[tree.name]
        operands = tuple(map(self._value, tree.arguments))
        if tree.function == "where":
            return self._choice(operands, target)
        self._release(*operands)  # a pass may write its own inputs
        compares = tree.function in ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not")
        place = target or self._take("mask" if compares else "part")
        self._passes.append(Pass(UFUNCS[tree.function], operands, place))
        return place

    def _choice(self, operands: tuple[Operand, ...], target: Place | None) -> Operand:
        condition, one, other = operands
        place = target or self._take("part")
        self._passes += [Pass(None, (other,), place), Pass(None, (one, condition), place)]
        self._release(*operands)
        return place

    def _take(self, kind: str) -> Place:
        if self._free[kind]:
            return Place(kind, self._free[kind].pop())
        self._made[kind] += 1
        return Place(kind, self._made[kind] - 1)

    def _release(self, *operands: Operand) -> None:
        for operand in set(operands):
            if isinstance(operand, Place) and operand.kind in self._free and operand not in self._named:
                self._free[operand.kind].append(operand.number)
