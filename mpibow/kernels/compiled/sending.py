"""The pass of a local step and a rule's `send`. generated.py puts the text of both formulas in front of this one's.

That text defines `step`, `parts`, `numbers` as loops.py says, and the functions below. `scalars` (k, groups, n) are
every row's own. Span number p of the rows ends in front of element ends[p] and is of group groups[p]. The step and its
states are for elements [origin, limit).
"""

from typing import TYPE_CHECKING

import numpy as np

from mpibow.graph import Array, Arrays
from mpibow.graph.layout import TILE
from mpibow.kernels.compiled.steps import (
    BLOCK,
    WIDE,
    Number,
    Numbers,
    chunk,
    compiled,
    copied,  # noqa: F401
    cut,
    gradient_of,
    inlined,
    plus_square,
    span_of,
)
from mpibow.kernels.passes import States

if TYPE_CHECKING:
    from mpibow.kernels.compiled.loops import numbers, parts, step

    def send(w: float, u: float, arrays: Arrays, j: int, numbers: Numbers) -> tuple[float, float]:
        """An element's new weight, and its summand."""

    def kept(arrays: Arrays, a: int, b: int) -> Arrays:
        """Elements a to b of every array of the rule."""

    def rounded(numbers: Array, number: Number) -> Numbers:
        """The rule's numbers as a tuple of the type `number`."""

    def gather(total: Array, j: int, begin: bool, x: float) -> None:
        """total[j] <- x where `begin`, else total[j] + x; nothing where the rule sends nothing."""


@inlined
def _row(
    w: Array, s: States, g: Array, total: Array, arrays: Arrays, c: Numbers, values: Numbers, begin: bool
) -> float:
    """Updates a part of one row; returns its |u|^2."""
    square = w.dtype.type(0)
    for j in range(len(w)):
        u = step(w[j], g[j], s, j, c)
        square = plus_square(square, u)
        w[j], summand = send(w[j], u, arrays, j, values)
        gather(total, j, begin, summand)
    return square


@compiled
def update(
    weights: Array,
    states: States,
    gradients: Array,
    factors: Array,
    origin: int,
    limit: int,
    ends: Array,
    groups: Array,
    scalars: Array,
    total: Array,
    squares: Array,
    arrays: Arrays,
    values: Array,
    begin: bool,
    first: int,
    last: int,
) -> None:
    number = weights.dtype.type
    k = len(weights)
    own = rounded(values, number)
    made = np.empty(BLOCK, weights.dtype)
    for c in range(first, last):
        start = max(c * chunk, origin)
        stop = min((c + 1) * chunk, limit)
        if start >= stop:
            continue
        square = 0.0 if begin and start == c * chunk else squares[c]
        for row in range(0, k, 2):
            a = start
            p = 0
            while a < stop:
                p = span_of(ends, p, a)
                b, f = cut(a, min(a + BLOCK, stop, ends[p]), factors)
                if WIDE and f >= 0:  # memory sends while the next tile is computed
                    b = min(b, a + TILE)
                for i in range(row, min(row + 2, k)):
                    g = gradient_of(gradients[i], a, b, factors, f, made)
                    square += _row(
                        weights[i, a:b],
                        parts(states, i, a - origin, b - origin),
                        g,
                        total[a:b],
                        kept(arrays, a, b),
                        numbers(scalars, i, groups[p], number),
                        own,
                        begin and i == 0,
                    )
                a = b
        squares[c] = square
