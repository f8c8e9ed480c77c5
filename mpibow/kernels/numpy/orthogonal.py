"""Matrices of a flat array made orthogonal, for Muon's step: their shapes, their places, and what it costs."""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from mpibow.graph import Array, Shape, Span
from mpibow.graph.formats import unpack
from mpibow.kernels.passes import Matrix

COEFFICIENTS = 3.4445, -4.7750, 2.0315
ITERATIONS = 5


def nearest(v: Array, iterations: int, fixed: bool) -> Array:
    """|V| O / |O| of V (a, b), Frobenius norms; O is the orthogonal matrix nearest to V, roughly. 0 stays 0.

    Or O itself, `fixed`, whose singular values are about 1, whatever the norm of V.

    With V = P S Q^T the nearest one is P Q^T. Five times X <- 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X from
    V / |V|, which changes singular values alone: those from 0.0015 on are within [0.68, 1.21] then, smaller ones 485
    times as large at most. (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024, for these
    coefficients; Carlson et al., "Stochastic spectral descent", AISTATS 2015, for such steps.) Each of the five
    multiplies X by a polynomial of X X^T; their product is made of the first X X^T alone, and multiplies V once.
    """
    if v.shape[0] > v.shape[1]:
        return nearest(v.T, iterations, fixed).T
    largest = abs(v).max() or 1
    x = v / largest  # no square overflows now, or is 0
    length = np.linalg.norm(x)
    x = x / (length or 1)
    square = x @ x.T
    factor = whole = _polynomial(square)
    for _ in range(iterations - 1):
        square = factor @ square @ factor
        factor = _polynomial(square)
        whole = factor @ whole
    y: Array = whole @ x
    if not fixed:
        y *= length / (np.linalg.norm(y) or 1)
        y *= largest
    return y


def _polynomial(square: Array) -> Array:
    """3.4445 - 4.7750 S + 2.0315 S^2 of S = square."""
    first, third, fifth = (square.dtype.type(each) for each in COEFFICIENTS)
    made: Array = fifth * (square @ square) + third * square + first * np.eye(len(square), dtype=square.dtype)
    return made


def orthogonal(matrices: Sequence[Matrix], dtype: npt.DTypeLike, iterations: int = ITERATIONS) -> Callable[..., None]:
    """A function that computes orthogonal steps of matrices on one thread, with scratch memory of its own.

    (step, total, number, scale=, fixed=False): step (size,) <- `scale` times `nearest` of the matrix of that number in
    total (size,), in its place. `step` and `total` may be the same array.
    """
    places = [matrix.rows[:, np.newaxis] + matrix.columns for matrix in matrices]

    def make(step: Array, total: Array, number: int, *, scale: float, fixed: bool = False) -> None:
        step[places[number]] = nearest(total[places[number]], iterations, fixed) * step.dtype.type(scale)

    return make


# Weights as matrices.


def matrix_of(shape: Shape) -> tuple[int, int]:
    """Rows and columns of a weight of at least two axes: its outputs, and the inputs of each output."""
    return shape[0], prod(shape[1:])


def cost_of(span: Span, iterations: int) -> int:
    """The approximate number of operations of an orthogonal step."""
    a, b = sorted(matrix_of(span.shape))
    return 4 * a * a * b + 2 * a**3 * (4 * iterations - 3)


def place_of(span: Span) -> Matrix:
    """The place of a matrix, with its smaller side as rows, and both sides in the order in which they lie.

    In every layout an element's place is the sum of one offset for each of its indices. Padding is left out.
    """
    places = unpack(np.arange(span.size), span.format, span.shape).reshape(matrix_of(span.shape))
    rows = np.sort(places[:, 0])
    columns = np.sort(places[0] - places[0, 0])
    rows, columns = (rows, columns) if len(rows) <= len(columns) else (columns, rows)
    return Matrix(rows + span.offset, columns)
