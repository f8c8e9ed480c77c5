"""The replicas' distances from their mean: measured now and then, for the log; no step depends on them."""

import math
from collections.abc import Sequence

import numpy as np

from mpibow.graph import Array

PIECE = 65536  # elements that are read at once, of all rows while they are in the cache


def distances(rows: Array, mean: Array | None = None) -> list[float]:
    """|w_i - W| / |W| of every replica w_i of rows (k, size), W being `mean` (size,) or the rows' own."""
    count, size = rows.shape
    squares = [0.0] * count
    whole = 0.0
    for start in range(0, size, PIECE):
        part = rows[:, start : start + PIECE]
        centre = part.mean(axis=0) if mean is None else mean[start : start + PIECE]
        whole += float(np.dot(centre, centre))
        for i, row in enumerate(part):
            gap = row - centre
            squares[i] += float(np.dot(gap, gap))
    return [math.sqrt(square / whole) if whole else 0.0 for square in squares]


def summed_up(found: Sequence[float]) -> tuple[float, float] | None:
    """The mean and the largest of the distances; None if there are none, or one is not finite."""
    return (math.fsum(found) / len(found), max(found)) if found and all(map(math.isfinite, found)) else None
