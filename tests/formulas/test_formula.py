"""What formulas are read as, and what is refused, each with its message in full; NumPy's run of them."""

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from mpibow.errors import FormulaError
from mpibow.formulas import Formula, formula, functions
from mpibow.formulas.functions import maximum, minimum, where
from mpibow.testing import hard
from tests.formulas import samples

NAN = math.nan
sqrt = math.sqrt  # not a formula's


@pytest.mark.parametrize(("read", "scalars"), samples.EXACT.values(), ids=samples.EXACT)
def test_a_formula_is_what_python_computes(read: Formula, scalars):
    arrays = [hard("float64", seed) for seed in range(len(read.arrays))]
    named, function = dict(zip(read.scalars, scalars, strict=True)), getattr(samples, read.name)
    with np.errstate(all="ignore"):
        found = read(*arrays, **named)
        expected = np.array([function(*each, **named) for each in zip(*arrays, strict=True)], float)
    np.testing.assert_array_equal(np.broadcast_arrays(*found), expected.reshape(len(expected), -1).T)


def test_numpy_runs_it_in_the_arrays_type_literals_and_scalars_too():
    w, g, v = (np.array([value], "float32") for value in (3.0, 0.1, 0.7))
    u, new = formula(samples.heavy_ball)(w, g, v, rate=0.1, momentum=0.9, decay=0.01)
    number = np.float32
    expected = number(0.9) * v + (g + number(0.01) * w)
    assert new.dtype == u.dtype == np.float32
    assert new == expected
    assert u == -number(0.1) * expected
    sign, *_ = formula(_signs)(w, g)  # of literals alone
    assert sign.dtype == np.float32


def _signs(w, g) -> tuple:
    return where(w > 0, 1, -1), w


def test_the_rules_of_nan_and_of_zeros():
    a, b = np.array([1.0, NAN, 1.0, 0.0, -0.0, NAN]), np.array([2.0, 1.0, NAN, -0.0, 0.0, NAN])
    np.testing.assert_array_equal(minimum(a, b), [1, NAN, NAN, -0.0, 0.0, NAN])
    np.testing.assert_array_equal(np.signbit(minimum(a, b)[3:5]), [True, False])
    np.testing.assert_array_equal(maximum(a, b), [2, NAN, NAN, -0.0, 0.0, NAN])
    np.testing.assert_array_equal(np.signbit(maximum(a, b)[3:5]), [True, False])
    sign = functions.sign(np.array([NAN, -0.0, 0.0, -3.0, np.inf]))
    np.testing.assert_array_equal(sign, [NAN, 0, 0, -1, 1])
    assert not np.signbit(sign[1])
    np.testing.assert_array_equal(where(a > 0, a, b), [1, 1, 1, -0.0, 0, NAN])
    assert where(True, 1.0, NAN) == 1.0


def test_curves():
    x = np.array([-2.0, 0.5], "float32")
    assert functions.erf(x).dtype == np.float32
    np.testing.assert_allclose(functions.erf(x), [math.erf(-2), math.erf(0.5)], rtol=1e-7)
    np.testing.assert_allclose(functions.tanh(x), np.tanh([-2, 0.5]), rtol=1e-6)
    np.testing.assert_allclose(functions.exp(x), np.exp([-2, 0.5]), rtol=1e-6)
    assert functions.erf(np.float32(0.5)) == np.float32(math.erf(0.5))


# What is refused. The line that a message names is the first that stands behind `def`.
def _loop(w, g):
    for _ in range(3):
        w = w + g
    return w


def _branch(w, g):
    if g > 0:
        return w
    return g


def _choice(w, g):
    return w if g > 0 else g


def _power(w, g):
    return w**2


def _remainder(w, g):
    return w % g


def _library(w, g):
    return np.sqrt(w)


def _another(w, g):
    return sqrt(w)


def _count(w, g):
    return minimum(w)


def _comparison(w, g):
    return g * (w > 0)


def _number(w, g):
    return where(w, w, g)


def _chain(w, g):
    return where(0 < w < 1, w, g)


def _negation(w, g):
    return not w


def _unknown(w, g):
    return w * beta  # noqa: F821


def _text(w, g):
    return w + "1"


def _truth(w, g):
    return w + True


def _module(w, g):
    return w * np


def _several(w, g):
    w, g = g, w
    return w


def _in_place(w, g):
    w += g
    return w


def _element(w, g):
    return w[0]


def _nothing(w, g) -> None:
    w = w + g


def _own(w, g):
    _w = w + g
    return _w


def _hidden(w, g, exp):
    return exp


def _default(w, g, *, rate=1.0):
    return rate * g


def _without(*, rate):
    return rate


def _loops(w, g):
    return _again(w, g)


def _again(w, g):
    return _loops(w, g)


def _results(w, g):
    return w + samples_mixed(w, g, share=1)


def _fewer(w, g):
    w, g, w = samples_mixed(w, g, share=1)
    return w


def _arguments(w, g):
    return samples_mixed(w, 1)


def _place(w, g):
    return samples_mixed(w, g, 1)


def _slot(w, g):
    w, g[0] = samples_mixed(w, g, share=1)
    return w


samples_mixed = samples.mixed
ALLOWED = (
    "call one of sqrt, exp, expm1, log, log1p, tanh, erf, sin, cos, floor, sign, abs, fmod, minimum, maximum, power, "
    "where, imported from mpibow.formulas.functions, or a function that is written as a formula"
)
WRITE = "has other arguments than its function; write samples_mixed(a, b, share=...)"
REFUSED = {
    _loop: "`for _ in range(3):` is not an assignment; a formula is of one element, with no loop",
    _branch: "`if g > 0:` is not an assignment; write where(condition, a, b) in an assignment",
    _choice: "`w if g > 0 else g` is not a number; write where(condition, a, b)",
    _power: "`w ** 2` is not one of + - * /; write x * x, or sqrt(x)",
    _remainder: "`w % g` is not one of + - * /",
    _library: f"`np.sqrt(w)` is not a function of formulas; {ALLOWED}",
    _another: "`sqrt(w)` is another sqrt; import it from mpibow.formulas.functions",
    _count: "`minimum(w)` has 1 argument(s), minimum takes 2",
    _comparison: "`w > 0` is not a number; write comparisons in the condition of where(condition, a, b)",
    _number: "`w` is not a condition; write a comparison, as x != 0",
    _chain: "`0 < w < 1` is not one comparison; write a < b and b < c",
    _negation: "`not w` is not arithmetic; write and, or, not in the condition of where(condition, a, b)",
    _unknown: "`beta` is not known here; make it a parameter: an array before the `*`, a scalar behind it",
    _text: "`'1'` is not a finite number",
    _truth: "`True` is not a finite number",
    _module: "`np` is not a finite number",
    _results: "`samples_mixed(w, g, share=1)` gives 2 results; write a, b, ... = samples_mixed(...) in front",
    _fewer: "`w, g, w = samples_mixed(w, g, share=1)` has 3 name(s) for 2 result(s)",
    _arguments: f"`samples_mixed(w, 1)` {WRITE}",
    _place: f"`samples_mixed(w, g, 1)` {WRITE}",
    _slot: "`g[0]` is not a name; a formula is of one element, and its names are elements already",
    _several: "`w, g = (g, w)` does not assign to one name; write one assignment a line",
    _in_place: "`w += g` is not an assignment; write x = x + ...",
    _element: "`w[0]` is not a number; a formula is of one element, and its names are elements already",
    _nothing: "`w = w + g` does not end with its results; end with `return u, state, ...`",
    _own: "`_w` cannot be a name here; choose one of letters and digits that no function has",
}
OF_PARAMETERS = {
    _hidden: "`exp` cannot be a name here; choose one of letters and digits that no function has",
    _default: "`def _default(w, g, *, rate=1.0):` has a parameter with a default or a *; "
    "name every array and every scalar",
    _without: "`def _without(*, rate):` has no array; write arrays in front of the `*`, scalars behind it",
}


@pytest.mark.parametrize("function", [*REFUSED, *OF_PARAMETERS], ids=lambda function: function.__name__)
def test_what_is_no_formula_is_refused_with_its_line(function: Callable):
    line = function.__code__.co_firstlineno + (function in REFUSED)
    message = REFUSED.get(function) or OF_PARAMETERS[function]
    whole = f"formula {function.__name__!r}, {__file__}:{line}: {message}"
    with pytest.raises(FormulaError, match=f"^{re.escape(whole)}$") as caught:
        formula(function)
    assert caught.value.code == 2


def test_a_formula_that_comes_back_to_itself_is_refused():
    line = _again.__code__.co_firstlineno + 1
    whole = (
        f"formula '_again', {__file__}:{line}: `_loops(w, g)` calls itself; a formula is of one element, with no loop"
    )
    with pytest.raises(FormulaError, match=f"^{re.escape(whole)}$"):
        formula(_loops)


def test_a_function_without_source_is_refused():
    names = {}
    exec("def made(w, g):\n    return w", names)
    for function, name in ((names["made"], "made"), (lambda w, g: w, "<lambda>")):
        with pytest.raises(FormulaError) as caught:
            formula(function)
        start = f"formula {name!r}"
        assert str(caught.value).startswith(start)
        assert "write it as a `def`" in str(caught.value)
