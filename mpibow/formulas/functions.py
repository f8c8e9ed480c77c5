"""The functions that a formula may call, on NumPy arrays. Other machines follow the rules here.

`+ - * /`, sqrt and floor have the same bits on every machine; exp, log, log1p, power, tanh, erf, sin and cos are each
machine's own, within 4 ulp in the formulas of steps.
"""

import math
from typing import Any, TypeAlias

import numpy as np

Element: TypeAlias = Any  # an element of an array, on any machine; NumPy computes all elements at once
_erf = np.frompyfunc(math.erf, 1, 1)  # NumPy has none


def sqrt(x: Element) -> Element:
    return np.sqrt(x)


def exp(x: Element) -> Element:
    return np.exp(x)


def log(x: Element) -> Element:
    return np.log(x)


def log1p(x: Element) -> Element:
    """log(1 + x), also where 1 + x is rounded to 1."""
    return np.log1p(x)


def power(x: Element, exponent: Element) -> Element:
    """NaN of x below 0 where the exponent is no whole number."""
    return np.power(x, exponent)


def tanh(x: Element) -> Element:
    return np.tanh(x)


def sin(x: Element) -> Element:
    return np.sin(x)


def cos(x: Element) -> Element:
    return np.cos(x)


def floor(x: Element) -> Element:
    return np.floor(x)


def erf(x: Element) -> Element:
    """Computed in float64, a number at a time."""
    return np.asarray(_erf(x), x.dtype) if isinstance(x, np.ndarray) else type(x)(math.erf(x))


def sign(x: Element) -> Element:
    """1, -1 or 0, whose sign is +; NaN of NaN."""
    return np.sign(x)


def abs(x: Element) -> Element:
    return np.abs(x)


def minimum(a: Element, b: Element) -> Element:
    """The lesser; NaN where either is; for 0 and -0 the second."""
    return where((a < b) | (a != a), a, b)


def maximum(a: Element, b: Element) -> Element:
    """The greater; NaN where either is; for 0 and -0 the second."""
    return where((a > b) | (a != a), a, b)


def where(condition: Element, a: Element, b: Element) -> Element:
    """`a` where the condition holds, else `b`, whatever the other one is. With NaN only != holds."""
    return (a if condition else b) if np.ndim(condition) == 0 else np.where(condition, a, b)


# The number of arguments of each.
COUNTS = {
    **dict.fromkeys(("sqrt", "exp", "log", "log1p", "tanh", "erf", "sin", "cos", "floor", "sign", "abs"), 1),
    **dict.fromkeys(("minimum", "maximum", "power"), 2),
    "where": 3,
}
