"""The functions that a formula may call, on NumPy arrays. Other machines follow the rules here.

`+ - * /`, sqrt, floor and fmod have the same bits on every machine; exp, expm1, log, log1p, power, tanh, erf, sin and
cos are each machine's own, within 4 ulp in the formulas of steps.
"""

import math
from typing import Any

import numpy as np

Element = Any  # an element of an array, on any machine; NumPy computes all elements at once
_erf = np.frompyfunc(math.erf, 1, 1)  # NumPy has none


sqrt = np.sqrt
exp = np.exp
log = np.log
tanh = np.tanh
sin = np.sin
cos = np.cos
floor = np.floor
abs = np.abs
log1p, expm1 = np.log1p, np.expm1  # log(1 + x) and exp(x) - 1, exact near 0
fmod = np.fmod  # the rest of a / b, exact; its sign is a's
power = np.power  # of an element and an exponent; NaN of elements below 0 where the exponent is no whole number
sign = np.sign  # 1, -1 or 0, whose sign is +; NaN of NaN


def erf(x: Element) -> Element:
    """Computed in float64, a number at a time."""
    return np.asarray(_erf(x), x.dtype) if isinstance(x, np.ndarray) else type(x)(math.erf(x))


def minimum(a: Element, b: Element) -> Element:
    """The lesser; NaN where either is; for 0 and -0 the second."""
    return where((a < b) | (a != a), a, b)


def maximum(a: Element, b: Element) -> Element:
    """The greater; NaN where either is; for 0 and -0 the second."""
    return where((a > b) | (a != a), a, b)


def where(condition: Element, a: Element, b: Element) -> Element:
    """`a` where the condition holds, else `b`, whatever the other one is. With NaN only != holds."""
    return (a if condition else b) if np.ndim(condition) == 0 else np.where(condition, a, b)


CURVES = ["exp", "expm1", "log", "log1p", "tanh", "erf", "sin", "cos"]  # each machine's own, within 4 ulp
# The number of arguments of each.
COUNTS = {
    **dict.fromkeys(("sqrt", *CURVES, "floor", "sign", "abs"), 1),
    **dict.fromkeys(("fmod", "minimum", "maximum", "power"), 2),
    "where": 3,
}
