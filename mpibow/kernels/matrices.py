"""Weights as matrices: their shape, the places of their elements, and the cost of an orthogonal step."""

from __future__ import annotations

from math import prod

import numpy as np

from mpibow.graph.formats import unpack
from mpibow.graph.graph import Shape
from mpibow.graph.layout import Span
from mpibow.kernels.numpy.orthogonal import ITERATIONS
from mpibow.kernels.passes import Matrix


def matrix_of(shape: Shape) -> tuple[int, int]:
    """Rows and columns of a weight of at least two axes: its outputs, and the inputs of each output."""
    return shape[0], prod(shape[1:])


def cost_of(span: Span, iterations: int = ITERATIONS) -> int:
    """The approximate number of operations of an orthogonal step."""
    a, b = sorted(matrix_of(span.shape))
    return 4 * a * a * b + 2 * a**3 * (4 * iterations - 3)


def place_of(span: Span) -> Matrix:
    """The place of a matrix, with its smaller side as rows, and both sides in the order in which they lie.

    In every layout an element's place is the sum of one offset for each of its indices. Padding is left out.
    """
    places = unpack(np.arange(span.size), span.format, span.shape).reshape(matrix_of(span.shape))
    rows, columns = np.sort(places[:, 0]), np.sort(places[0] - places[0, 0])
    rows, columns = (rows, columns) if len(rows) <= len(columns) else (columns, rows)
    return Matrix(rows + span.offset, columns)
