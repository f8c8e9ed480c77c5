"""A formula as Python text that numba compiles into the loops of a step, without fast math: NumPy's bits.

The text is a module's beginning: it imports what it needs, and defines

    step(w, g, states, j, scalars) -> u

of one element: `w` and `g` the weight and its gradient, `states` a tuple of arrays whose element j is read and written,
`scalars` a tuple of numbers of the element's type, in the order of the formula's. A condition on scalars alone is the
same for all elements, so the compiler makes a loop for each case.
"""

from __future__ import annotations

from mpibow.formulas.formula import OPERATORS, Dialect, Formula

NUMBA = Dialect(
    number="_number({})",
    name="{}",
    templates=OPERATORS
    | {"and": "({} and {})", "or": "({} or {})", "not": "(not {})", "where": "({1} if {0} else {2})"}
    | {"sqrt": "_math.sqrt({})", "exp": "_math.exp({})", "tanh": "_math.tanh({})", "erf": "_math.erf({})"}
    | {"log": "_math.log({})", "log1p": "_math.log1p({})", "power": "({} ** {})"}
    | {"abs": "abs({})", "sign": "_sign({})", "minimum": "_minimum({}, {})", "maximum": "_maximum({}, {})"},
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


def parts_of(formula: Formula) -> str:
    """The functions that its text calls."""
    return "\n".join(["", *("\n" + part.strip() + "\n" for name, part in PARTS.items() if name in formula.called)])


def source(formula: Formula) -> str:
    """The text of a step's formula."""
    w, g, *states = formula.arrays
    lines = [f"def step({w}, {g}, _states, _j, _scalars):", f"    # {formula.name}", f"    _number = type({w})"]
    lines += [f"    {name} = _states[{i}][_j]" for i, name in enumerate(states)]
    lines += [f"    {name} = _scalars[{i}]" for i, name in enumerate(formula.scalars)]
    lines += [f"    {name} = {NUMBA.text(tree)}" for name, tree in formula.assignments]
    lines += [f"    _result{i} = {NUMBA.text(tree)}" for i, tree in enumerate(formula.results)]
    lines += [f"    _states[{i}][_j] = _result{i + 1}" for i in range(len(states))]
    lines += ["    return _result0"]
    return "\n".join([HEAD.strip() + parts_of(formula), "\n@_inlined", *lines]) + "\n"
