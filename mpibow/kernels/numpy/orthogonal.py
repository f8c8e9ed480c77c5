"""Matrices of a flat array made orthogonal at their own norm, for the orthogonal common step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.passes import Matrix

COEFFICIENTS = 3.4445, -4.7750, 2.0315
ITERATIONS = 5


def nearest(v: Array, iterations: int = ITERATIONS, fixed: bool = False) -> tuple[Array, float]:
    """|V| O / |O| of V (a, b), Frobenius norms; O is the orthogonal matrix nearest to V, roughly. 0 stays 0.

    Or O itself, `fixed`, whose singular values are about 1, whatever the norm of V.

    And the reach of V, (sum s^8)^(1/8) sqrt(min(a, b)) / |V| with its singular values s: about how many times as long
    the result may be until it goes as far in every direction as V does in its strongest; at least 1.

    With V = P S Q^T the nearest one is P Q^T. Five times X <- 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X from
    V / |V|, which changes singular values alone: those from 0.0015 on are within [0.68, 1.21] then, smaller ones 485
    times as large at most. (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024, for these
    coefficients; Carlson et al., "Stochastic spectral descent", AISTATS 2015, for such steps.) Each of the five
    multiplies X by a polynomial of X X^T; their product is made of the first X X^T alone, and multiplies V once.
    """
    if v.shape[0] > v.shape[1]:
        made, reach = nearest(v.T, iterations, fixed)
        return made.T, reach
    largest = _or_1(abs(v).max())
    x = v / largest  # no square overflows now, or is 0
    length = np.linalg.norm(x)
    x = x / _or_1(length)
    square = x @ x.T
    factor, power = _polynomial(square)
    whole, strongest = factor, np.linalg.norm(power) ** 0.25
    for _ in range(iterations - 1):
        square = factor @ square @ factor
        factor, _ = _polynomial(square)
        whole = factor @ whole
    y = whole @ x
    if not fixed:
        y *= length / _or_1(np.linalg.norm(y))
        y *= largest
    return y, max(float(strongest) * len(v) ** 0.5, 1.0) if strongest == strongest else np.nan


def _polynomial(square: Array) -> tuple[Array, Array]:
    """3.4445 - 4.7750 S + 2.0315 S^2 of S = square, and S^2."""
    first, third, fifth = (square.dtype.type(each) for each in COEFFICIENTS)
    power = square @ square
    return fifth * power + third * square + first * np.eye(len(square), dtype=square.dtype), power


def _or_1(divisor: Any) -> Any:
    return divisor if divisor != 0 else type(divisor)(1)


def orthogonal(matrices: Sequence[Matrix], dtype: Any, iterations: int = ITERATIONS) -> Callable[..., None]:
    """A function that computes orthogonal steps of matrices on one thread, with scratch memory of its own.

    (step, total, number, gain=, even=, fixed=False): step (size,) <- `nearest` of the matrix of that number in total
    (size,), in its place: `even` times, or so often that it goes `gain` times as far as its strongest direction,
    whichever is less. That is rough, as `nearest` is: where the second bound held, it went 1.2 to 1.9 times as far.
    Or, `fixed`, the orthogonal matrix itself, `even` times. `step` and `total` may be the same array.
    """
    places = [matrix.rows[:, np.newaxis] + matrix.columns for matrix in matrices]

    def make(step: Array, total: Array, number: int, *, gain: float, even: float, fixed: bool = False) -> None:
        made, reach = nearest(total[places[number]], iterations, fixed)
        step[places[number]] = made * step.dtype.type(even if fixed else min(even, gain * reach))

    return make
