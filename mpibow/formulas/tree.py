"""A formula of one element as a tree, its text in the language of a machine, and its run by NumPy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpibow.formulas import functions

Array = NDArray[Any]
Arrays = tuple[Array, ...]
ArraysByName = Mapping[str, Array]


@dataclass(frozen=True)
class Number:
    """A literal. It has the element's type."""

    value: float


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Apply:
    """A function of mpibow.formulas.functions or an operator, `-` of one argument being `negative`."""

    function: str
    arguments: tuple["Expression", ...]


Expression = Number | Name | Apply
Machine = Callable[[Array, Array, list[Array], Sequence[float]], Array]  # of a step: (w, g, states, scalars) -> u


@dataclass(frozen=True)
class Formula:
    """results[i] of an element of each of `arrays` and of `scalars`, once the assignments are made in order.

    The first two of a step's `arrays` are the weight and its gradient, and its first result is the step u; the arrays
    that follow are its states, the results that follow their new values.
    """

    name: str
    arrays: tuple[str, ...]
    scalars: tuple[str, ...]
    assignments: tuple[tuple[str, Expression], ...]
    results: tuple[Expression, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash of the whole tree, computed once: it takes long, and functions cached by formula need it often."""
        return hash((self.name, self.arrays, self.scalars, self.assignments, self.results))

    def __call__(self, *arrays: Array, **scalars: float) -> Arrays:
        """The results for whole arrays of one shape and dtype, by NumPy. Scalars and literals take their dtype."""
        number = arrays[0].dtype.type
        with np.errstate(all="ignore"):  # both values of a `where` are computed
            found = self._numpy(number, *arrays, *(number(scalars[name]) for name in self.scalars))
        return tuple(np.broadcast_to(each, arrays[0].shape) for each in found)

    @cached_property
    def _numpy(self) -> Callable[..., Arrays]:
        """The formula as a function (the element's type, arrays, scalars), which NumPy runs."""
        lines = [f"def _formula({', '.join(('_number', *self.arrays, *self.scalars))}):"]
        lines += [f"    {name} = {NUMPY.text(tree)}" for name, tree in self.assignments]
        lines += [f"    return {', '.join(map(NUMPY.text, self.results))},"]
        names = dict(_NAMES)
        exec(compile("\n".join(lines), f"<{self.name}>", "exec"), names)
        return names["_formula"]

    @property
    def called(self) -> frozenset[str]:
        """The functions and operators in it."""
        trees = (*(tree for _, tree in self.assignments), *self.results)
        return frozenset(each.function for tree in trees for each in parts_of(tree) if isinstance(each, Apply))


def parts_of(tree: Expression) -> Iterator[Expression]:
    """The tree, and all trees in it."""
    yield tree
    if isinstance(tree, Apply):
        for each in tree.arguments:
            yield from parts_of(each)


# The parts that every machine's language writes alike.
OPERATORS = {sign: f"({{}} {sign} {{}})" for sign in ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=")}
OPERATORS |= {"negative": "(-{})"}


@dataclass(frozen=True)
class Dialect:
    """How a machine's language writes a literal, a name, and each function and operator with its arguments."""

    number: str
    templates: Mapping[str, str]
    name: str = "{}"

    def text(self, tree: Expression) -> str:
        match tree:
            case Number(value):
                return self.number.format(repr(value))
            case Name(name):
                return self.name.format(name)
            case Apply(function, arguments):
                return self.templates[function].format(*map(self.text, arguments))


NUMPY = Dialect(
    number="_number({})",
    templates=OPERATORS
    | {"and": "_and({}, {})", "or": "_or({}, {})", "not": "_not({})"}
    | {name: f"_{name}({', '.join(['{}'] * count)})" for name, count in functions.COUNTS.items()},
)
_NAMES: dict[str, Callable[..., Arrays]] = {
    "_and": np.logical_and,
    "_or": np.logical_or,
    "_not": np.logical_not,
    **{f"_{name}": getattr(functions, name) for name in functions.COUNTS},
}
