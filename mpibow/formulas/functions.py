"""The functions that a formula may call, on NumPy arrays. Other machines follow the rules here.

`+ - * /` and sqrt have the same bits on every machine; exp, log, log1p, power, tanh and erf are each machine's own,
within 4 ulp in the formulas of steps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_erf = np.frompyfunc(math.erf, 1, 1)  # NumPy has none


def sqrt(x: Any) -> Any:
    return np.sqrt(x)


def exp(x: Any) -> Any:
    return np.exp(x)


def log(x: Any) -> Any:
    return np.log(x)


def log1p(x: Any) -> Any:
    """log(1 + x), also where 1 + x is rounded to 1."""
    return np.log1p(x)


def power(x: Any, exponent: Any) -> Any:
    """NaN of x below 0 where the exponent is no whole number."""
    return np.power(x, exponent)


def tanh(x: Any) -> Any:
    return np.tanh(x)


def erf(x: Any) -> Any:
    """Computed in float64, a number at a time."""
    return np.asarray(_erf(x), x.dtype) if isinstance(x, np.ndarray) else type(x)(math.erf(x))


def sign(x: Any) -> Any:
    """1, -1 or 0, whose sign is +; NaN of NaN."""
    return np.sign(x)


def abs(x: Any) -> Any:
    return np.abs(x)


def minimum(a: Any, b: Any) -> Any:
    """The lesser; NaN where either is; for 0 and -0 the second."""
    return where((a < b) | (a != a), a, b)


def maximum(a: Any, b: Any) -> Any:
    """The greater; NaN where either is; for 0 and -0 the second."""
    return where((a > b) | (a != a), a, b)


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`, whatever the other one is. With NaN only != holds."""
    return (a if condition else b) if np.ndim(condition) == 0 else np.where(condition, a, b)


# The number of arguments of each.
COUNTS = {
    "sqrt": 1, "exp": 1, "log": 1, "log1p": 1, "tanh": 1, "erf": 1, "sign": 1, "abs": 1,
    "minimum": 2, "maximum": 2, "power": 2, "where": 3,
}  # fmt: skip
