"""The passes of a local step alone. generated.py puts the text of its formula in front of this one's.

That text defines `step`, `parts`, `numbers` and `level`, as below. `scalars` (k, groups, n) are every row's own. Span
number p of the rows ends in front of element ends[p] and is of group groups[p]. The step and its states are for
elements [origin, limit).
"""

from typing import TYPE_CHECKING

import numpy as np

from mpibow.graph import Array
from mpibow.kernels.compiled.steps import (
    BLOCK,
    Number,
    Numbers,
    chunk,
    compiled,
    copied,
    cut,
    gradient_of,
    inlined,
    mean_of,
    plus_square,
    scaled_into,
    span_of,
    square_of,
)
from mpibow.kernels.passes import States

if TYPE_CHECKING:

    def step(w: float, g: float, states: States, j: int, scalars: Numbers) -> float:
        """An element's u; its states, element j of each, are updated."""

    def parts(states: States, i: int, a: int, b: int) -> States:
        """Elements a to b of row i of every state."""

    def numbers(scalars: Array, i: int, group: int, number: Number) -> Numbers:
        """Row i's scalars as a tuple of the type `number`."""

    def level(states: States, i: int, a: int, b: int) -> None:
        """Elements a to b of row i of every state <- the first row's."""


@inlined
def _two(
    w0: Array,
    w1: Array,
    s0: States,
    s1: States,
    g0: Array,
    g1: Array,
    c0: Numbers,
    c1: Numbers,
    alpha: float,
    gain: float,
) -> tuple[float, float]:
    """A whole update of a part of two rows, where there are only two; their |u|^2 and |U|^2."""
    half = w0.dtype.type(0.5)
    squares = square = w0.dtype.type(0)
    for j in range(len(w0)):
        x = w0[j]
        y = w1[j]
        u0 = step(x, g0[j], s0, j, c0)
        u1 = step(y, g1[j], s1, j, c1)
        both = u0 + u1
        squares = plus_square(plus_square(squares, u0), u1)
        square = plus_square(square, both)
        if alpha:
            mean = (x + y) * half
            u0 -= alpha * (x - mean)
            u1 -= alpha * (y - mean)
        x += u0
        y += u1
        if gain:
            x += gain * both
            y += gain * both
        w0[j] = x
        w1[j] = y
    return squares, square


@inlined
def _row(w: Array, s: States, g: Array, total: Array, mean: Array, c: Numbers, alpha: float) -> float:
    """A part of one row, without the common step; returns its |u|^2."""
    square = w.dtype.type(0)
    for j in range(len(w)):
        u = step(w[j], g[j], s, j, c)
        square = plus_square(square, u)
        total[j] += u
        if alpha:
            u -= alpha * (w[j] - mean[j])
        w[j] += u
    return square


@compiled
def sma_alone(
    weights: Array,
    states: States,
    gradients: Array,
    factors: Array,
    origin: int,
    limit: int,
    ends: Array,
    groups: Array,
    scalars: Array,
    sums: Array,
    alpha: float,
    gain: float,
    first: int,
    last: int,
) -> None:
    number = weights.dtype.type
    k = len(weights)
    pull = number(alpha)
    further = number(gain)
    scratch = np.empty((4, BLOCK + 32), weights.dtype)  # rows that do not share their places in a cache
    for c in range(first, last):
        a = max(c * chunk, origin)
        stop = min((c + 1) * chunk, limit)
        if c * chunk == a < stop:
            sums[c] = 0
        p = 0
        while a < stop:
            p = span_of(ends, p, a)
            group = groups[p]
            b, f = cut(a, min(a + BLOCK, stop, ends[p]), factors)
            here = a - origin
            there = b - origin
            n = b - a
            total = scratch[0, :n]
            mean = scratch[1, :n]
            if k == 2:
                squares, square = _two(
                    weights[0, a:b],
                    weights[1, a:b],
                    parts(states, 0, here, there),
                    parts(states, 1, here, there),
                    gradient_of(gradients[0], a, b, factors, f, scratch[2]),
                    gradient_of(gradients[1], a, b, factors, f, scratch[3]),
                    numbers(scalars, 0, group, number),
                    numbers(scalars, 1, group, number),
                    pull,
                    further,
                )
                sums[c, 0] += squares
                sums[c, 1] += square
            else:
                total[:] = 0
                if alpha:
                    mean_of(weights, a, b, mean)
                for i in range(k):
                    g = gradient_of(gradients[i], a, b, factors, f, scratch[2])
                    own = numbers(scalars, i, group, number)
                    square = _row(weights[i, a:b], parts(states, i, here, there), g, total, mean, own, pull)
                    sums[c, 0] += square
                sums[c, 1] += square_of(total)
                if gain:
                    for i in range(k):  # the rows are still in a cache
                        scaled_into(weights[i, a:b], total, further)
            a = b


@inlined
def _one(w: Array, s: States, gradient: Array, scale: float, c: Numbers) -> None:
    for j in range(len(w)):
        w[j] += step(w[j], scale * gradient[j], s, j, c)


@compiled
def sgd_update(
    weights: Array,
    states: States,
    gradients: Array,
    factors: Array,
    origin: int,
    limit: int,
    ends: Array,
    groups: Array,
    scalars: Array,
    scale: float,
    first: int,
    last: int,
) -> None:
    number = weights.dtype.type
    made = np.empty(BLOCK, weights.dtype)
    total = np.empty(BLOCK, weights.dtype)
    a = max(first * chunk, origin)
    p = 0
    stop = min(last * chunk, limit)
    while a < stop:
        p = span_of(ends, p, a)
        b, f = cut(a, min(a + BLOCK, stop, ends[p]), factors)
        here = a - origin
        there = b - origin
        g = gradient_of(gradients[0], a, b, factors, f, total)
        for i in range(1, len(gradients)):
            other = gradient_of(gradients[i], a, b, factors, f, made)
            for j in range(b - a):
                total[j] = g[j] + other[j]
            g = total[: b - a]
        _one(weights[0, a:b], parts(states, 0, here, there), g, number(scale), numbers(scalars, 0, groups[p], number))
        for i in range(1, len(weights)):
            copied(weights[0, a:b], weights[i, a:b])
            level(states, i, here, there)
        a = b
