"""Flat arrays on the host: the functions that mpibow.kernels.passes requires of every kernel set."""

import numpy.typing as npt

from mpibow.graph import Array
from mpibow.graph.memory import zeros

__all__ = ["host", "meter", "put", "rows_sum", "sum_squares", "zeros"]

meter = None  # the rule's own


def put(target: Array, source: npt.ArrayLike) -> None:
    """target <- an array, one row for all rows, or 0."""
    target[...] = source


def host(array: Array) -> Array:
    """The array itself."""
    return array


def rows_sum(rows: Array) -> Array:
    """The sum of rows (k, size)."""
    total: Array = rows.sum(axis=0)
    return total


def sum_squares(squares: Array, out: Array) -> None:
    """out (1,) <- the sum of squares (chunks,), in chunk order, whichever threads computed them."""
    out[0] = sum(squares.tolist())
