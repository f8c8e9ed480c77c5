"""Weights as matrices: their shape, where their elements lie, and what an orthogonal step of one costs."""

from __future__ import annotations

from math import prod

import numpy as np

from mpibow.graph.formats import unpack
from mpibow.graph.graph import Shape
from mpibow.graph.layout import Span
from mpibow.kernels.numpy.orthogonal import ITERATIONS
from mpibow.kernels.passes import Matrix


def matrix_of(shape: Shape) -> tuple[int, int]:
    """Rows and columns of a weight of at least two axes: outputs, and all that each is made of."""
    return shape[0], prod(shape[1:])


def cost_of(span: Span, iterations: int = ITERATIONS) -> int:
    """Operations of an orthogonal step, about."""
    a, b = sorted(matrix_of(span.shape))
    return 4 * a * a * b + 2 * a**3 * (4 * iterations - 3)


def place_of(span: Span) -> Matrix:
    """Where a matrix lies, with its smaller side as rows, and both sides in the order in which they lie.

    In every layout an element's place is the sum of one for each of its indices. Padding is no part of it.
    """
    places = unpack(np.arange(span.size), span.format, span.shape).reshape(matrix_of(span.shape))
    rows, columns = np.sort(places[:, 0]), np.sort(places[0] - places[0, 0])
    rows, columns = (rows, columns) if len(rows) <= len(columns) else (columns, rows)
    return Matrix(rows + span.offset, columns)
