"""A formula as Python text that numba compiles into loops, without fast math: NumPy's bits.

A module begins with HEAD and the parts of its formulas; each formula is a function of one element, such as

    step(w, g, arrays, j, numbers) -> u

`arrays` are a tuple whose element j is read, and written where the function keeps results; `numbers` a tuple of the
element's type, in the order of the formula's scalars. A condition on numbers alone is the same for all elements, so the
compiler makes a loop for each case.
"""

from collections.abc import Mapping, Sequence

from .functions import CURVES
from .tree import OPERATORS, Dialect, Formula

NUMBA = Dialect(
    number="_number({})",
    templates=OPERATORS
    | {"and": "({} and {})", "or": "({} or {})", "not": "(not {})", "where": "({1} if {0} else {2})"}
    | {name: f"_math.{name}({{}})" for name in ("sqrt", *CURVES)}
    | {"fmod": "_fmod({}, {})", "power": "({} ** {})", "abs": "abs({})", "floor": "_floor({})"}
    | {"sign": "_sign({})", "minimum": "_minimum({}, {})", "maximum": "_maximum({}, {})"},
)
HEAD = """
import math as _math

import numba as _numba

# error_model: a division by 0 is inf or NaN, as NumPy's; the test that Python wants would keep loops scalar.
_part = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_inlined = _numba.njit(**_part, error_model="numpy")
"""
# Functions that a Python expression could not compute without evaluating an argument twice.
PARTS = {
    "sign": """
@_inlined
def _sign(x):
    number = type(x)
    return number(1) if x > 0 else number(-1) if x < 0 else number(0) if x == 0 else x
""",
    "floor": """
import numpy as _numpy


@_inlined
def _floor(x):
    return _numpy.floor(x)
""",
    "fmod": """
import numpy as _numpy


@_inlined
def _fmod(a, b):
    return _numpy.fmod(a, b)
""",
    "minimum": """
@_inlined
def _minimum(a, b):
    return a if a < b or a != a else b
""",
    "maximum": """
@_inlined
def _maximum(a, b):
    return a if a > b or a != a else b
""",
}


def head(*formulas: Formula) -> str:
    """The beginning of a module with functions of these formulas."""
    called = frozenset[str]().union(*(formula.called for formula in formulas))
    return "\n".join([HEAD.strip(), *("\n" + part.strip() + "\n" for name, part in PARTS.items() if name in called)])


def function(
    name: str, formula: Formula, elements: Sequence[str], returned: Sequence[int], kept: Mapping[int, str] | None = None
) -> str:
    """The text of `name`(*elements, arrays, j, numbers) -> the results number `returned`.

    The formula's other arrays are element j of `arrays`, in order. `kept`: results that are written there, by number.
    """
    arrays = [each for each in formula.arrays if each not in elements]
    lines = [
        "@_inlined",
        f"def {name}({', '.join([*elements, '_arrays', '_j', '_numbers'])}):",
        f"    # {formula.name}",
    ]
    lines += [f"    _number = type({elements[0]})"]
    lines += [f"    {each} = _arrays[{i}][_j]" for i, each in enumerate(arrays)]
    lines += [f"    {each} = _numbers[{i}]" for i, each in enumerate(formula.scalars)]
    lines += [f"    {each} = {NUMBA.text(tree)}" for each, tree in formula.assignments]
    lines += [f"    _result{i} = {NUMBA.text(formula.results[i])}" for i in sorted({*returned, *(kept or ())})]
    lines += [f"    _arrays[{arrays.index(each)}][_j] = _result{i}" for i, each in (kept or {}).items()]
    lines += [f"    return {', '.join(f'_result{i}' for i in returned)}"] if returned else []
    return "\n".join(lines) + "\n"


def step(formula: Formula) -> str:
    """The text of a step's formula: step(w, g, states, j, numbers) -> u."""
    return function("step", formula, formula.arrays[:2], [0], dict(enumerate(formula.arrays[2:], 1)))


def source(formula: Formula) -> str:
    """A module's text with `step` alone."""
    return head(formula) + "\n" + step(formula)
