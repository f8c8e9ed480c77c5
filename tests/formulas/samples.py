"""Formulas that use all of the language, and how two results are compared."""

import numpy as np

from mpibow.formulas import Array, Formula, formula, functions as f
from mpibow.formulas.functions import abs, erf, exp, maximum, minimum, sign, sqrt, tanh, where

TINY = 1e-30


def plain(w, g, *, rate):
    return -rate * g


def heavy_ball(w, g, momenta, *, rate, momentum, decay) -> tuple:
    """Has a docstring."""
    g = where(decay != 0, g + decay * w, g)
    momenta = momentum * momenta + g
    momenta = where(abs(momenta) < TINY, 0, momenta)
    return -rate * momenta, momenta


def adaptive(w, g, m, v, *, rate, eps) -> tuple:
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return -rate * m / (sqrt(v) + eps), m, v


def choices(w, g, states, j, *, scalars, double) -> tuple:
    """Names that generated texts have for things of their own, or as keywords."""
    big = where((g > 1 and not w <= 0) or g != g, 1, -1)
    small = where(abs(g) >= scalars or states == j, minimum(g, w), maximum(w, -g))
    return where(double < 0.5, big * small, +sign(g)), sign(small) - big / 3, where(double > 0, sqrt(states), j)


def extremes(w, g, low, high) -> tuple:
    return sign(w), minimum(w, g), maximum(w, g)


def curves(w, g, a, b) -> tuple:
    return exp(w), tanh(w), erf(w)


def mixed(a, b, *, share) -> tuple:
    b = square(b) * share
    return a + b, a - b


def square(x):
    return x * x


def calls(w, g, m, v, *, share) -> tuple:
    """Other formulas, whose names are its own as well: each result is of what stood there before the line."""
    b = m + 1
    v, m = mixed(v, m, share=share)
    a, g = mixed(square(g), b, share=0.5)
    return where(a > 0, square(square(w)), g), m, v + b


def logarithms(w, g, a, b) -> tuple:
    return f.log(w), f.log1p(w), f.power(abs(w), g)


EXACT: dict[str, tuple[Formula, tuple[float, ...]]] = {
    "plain": (formula(plain), (0.1,)),
    "heavy ball": (formula(heavy_ball), (0.1, 0.9, 0.0)),
    "heavy ball, decay": (formula(heavy_ball), (0.1, 0.9, 0.01)),
    "adaptive": (formula(adaptive), (0.01, 1e-8)),
    "choices": (formula(choices), (0.7, 0.1)),
    "choices, else": (formula(choices), (0.7, 0.9)),
    "extremes": (formula(extremes), ()),
    "calls": (formula(calls), (0.3,)),
}
CURVES, LOGARITHMS = formula(curves), formula(logarithms)


def same_bits(got: Array, expected: Array) -> None:
    """NaN is NaN whatever its payload is."""
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(got[known].view(f"i{got.itemsize}"), expected[known].view(f"i{got.itemsize}"))
