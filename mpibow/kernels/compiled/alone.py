"""Compiled passes of learners that are all one rank's: their update with all that follows from it, and their mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import TILE
from mpibow.kernels.compiled.steps import (
    BLOCK,
    TINY,
    chunk,
    compiled,
    cut,
    ends,
    gradient_of,
    inlined,
    momenta_of,
    only,
    plus_square,
    scaled_into,
    step,
)
from mpibow.kernels.passes import WHOLE, Local, States

PAGES = 4096  # elements: of four rows or more a row is walked so far before the next; what they share stays in L2


@inlined
def _two(
    w0: Array, w1: Array, v0: Array, v1: Array, g0: Array, g1: Array, rate: Any, momentum: Any, nesterov: bool,
    decay: Any, tiny: Any, alpha: Any, gain: Any,
) -> tuple[float, float]:  # fmt: skip
    """A part of two rows that are all there are, whole, in registers; their sum |u|^2 and |U|^2."""
    squares, square, half = 0.0, 0.0, w0.dtype.type(0.5)
    for j in range(len(w0)):
        x, y = w0[j], w1[j]
        after0, u0 = step(x, v0[j], g0[j], rate, momentum, nesterov, decay, tiny)
        after1, u1 = step(y, v1[j], g1[j], rate, momentum, nesterov, decay, tiny)
        if momentum:
            v0[j], v1[j] = after0, after1
        squares = plus_square(plus_square(squares, u0), u1)
        both = u0 + u1
        square = plus_square(square, both)
        if alpha:
            mean = (x + y) * half
            u0, u1 = u0 - alpha * (x - mean), u1 - alpha * (y - mean)
        x, y = x + u0, y + u1
        if gain:
            x, y = x + gain * both, y + gain * both
        w0[j], w1[j] = x, y
    return squares, square


@inlined
def _pair(
    w0: Array, w1: Array, v0: Array, v1: Array, g0: Array, g1: Array, total: Array, mean: Array, rate: Any,
    momentum: Any, nesterov: bool, decay: Any, tiny: Any, alpha: Any,
) -> float:  # fmt: skip
    """A part of two rows of more, but for the common step; their sum |u|^2. Of two, `total` and `mean` move once."""
    squares = 0.0
    for j in range(len(w0)):
        x, y, centre = w0[j], w1[j], mean[j]
        after0, u0 = step(x, v0[j], g0[j], rate, momentum, nesterov, decay, tiny)
        after1, u1 = step(y, v1[j], g1[j], rate, momentum, nesterov, decay, tiny)
        if momentum:
            v0[j], v1[j] = after0, after1
        squares = plus_square(plus_square(squares, u0), u1)
        total[j] = total[j] + u0 + u1
        if alpha:
            u0, u1 = u0 - alpha * (x - centre), u1 - alpha * (y - centre)
        w0[j], w1[j] = x + u0, y + u1
    return squares


@inlined
def _last(
    w: Array, v: Array, g: Array, total: Array, mean: Array, rate: Any, momentum: Any, nesterov: bool, decay: Any,
    tiny: Any, alpha: Any,
) -> float:  # fmt: skip
    """As `_pair`, of one row."""
    square = 0.0
    for j in range(len(w)):
        after, u = step(w[j], v[j], g[j], rate, momentum, nesterov, decay, tiny)
        if momentum:
            v[j] = after
        square = plus_square(square, u)
        total[j] += u
        if alpha:
            u = u - alpha * (w[j] - mean[j])
        w[j] += u
    return square


@inlined
def _mean_of(rows: Array, a: int, b: int, mean: Array) -> None:
    """mean[: b - a] <- the mean of the rows' elements a to b, added up in row order, two at a time."""
    k = len(rows)
    for i in range(0, k, 2):
        one, other = rows[i, a:b], rows[min(i + 1, k - 1), a:b]
        for j in range(b - a):
            x = mean[j] + one[j] if i else one[j]
            mean[j] = x + other[j] if i + 1 < k else x
    share = mean.dtype.type(1.0 / k)
    for j in range(b - a):
        mean[j] *= share


@compiled
def _sma_alone(
    weights: Array, momenta: Array, gradients: Array, sums: Array, factors: Array, rate: float, momentum: float,
    nesterov: bool, decay: float, decayed: int, alpha: float, gain: float, first: int, last: int,
) -> None:  # fmt: skip
    number, (k, size) = weights.dtype.type, weights.shape
    by, m, tiny, pull, common = number(-rate), number(momentum), number(TINY), number(alpha), number(gain)
    block = chunk if k == 2 else BLOCK if k < 4 else PAGES
    total, mean = np.zeros(block, weights.dtype), np.zeros(block, weights.dtype)
    spare = np.zeros((2, block), weights.dtype)
    made0, made1 = np.empty(TILE, weights.dtype), np.empty(TILE, weights.dtype)
    for c in range(first, last):
        squares, square = 0.0, 0.0
        stop = min((c + 1) * chunk, size)
        a = c * chunk
        while a < stop:
            b, f = cut(a, min(a + block, stop), decayed, factors)
            d = number(decay if a < decayed else 0.0)
            if k == 2:
                x, y = _two(
                    weights[0, a:b], weights[1, a:b],
                    momenta_of(momenta[0], a, b, momentum, spare[0]), momenta_of(momenta[1], a, b, momentum, spare[1]),
                    gradient_of(gradients[0], a, b, factors, f, made0),
                    gradient_of(gradients[1], a, b, factors, f, made1), by, m, nesterov, d, tiny, pull, common,
                )  # fmt: skip
                squares, square, a = squares + x, square + y, b
                continue
            part, centre = total[: b - a], mean[: b - a]
            part[:] = 0
            if alpha:
                _mean_of(weights, a, b, centre)
            for i in range(0, k - 1, 2):
                squares += _pair(
                    weights[i, a:b], weights[i + 1, a:b],
                    momenta_of(momenta[i], a, b, momentum, spare[0]),
                    momenta_of(momenta[i + 1], a, b, momentum, spare[1]),
                    gradient_of(gradients[i], a, b, factors, f, made0),
                    gradient_of(gradients[i + 1], a, b, factors, f, made1), part, centre,
                    by, m, nesterov, d, tiny, pull,
                )  # fmt: skip
            if k % 2:
                g = gradient_of(gradients[k - 1], a, b, factors, f, made0)
                w, v = weights[k - 1, a:b], momenta_of(momenta[k - 1], a, b, momentum, spare[0])
                squares += _last(w, v, g, part, centre, by, m, nesterov, d, tiny, pull)
            for j in range(b - a):
                square = plus_square(square, part[j])
            if gain:
                for i in range(k):  # which lie in a cache still
                    scaled_into(weights[i, a:b], part, common)
            a = b
        sums[c, 0], sums[c, 1] = squares, square


def sma_alone(
    weights: Array, states: States, gradients: Array, sums: Array, *, local: Local, alpha: float, gain: float,
    chunks: range, factors: Array = WHOLE,
) -> None:  # fmt: skip
    _sma_alone(
        weights, only(states, weights), gradients, sums, factors, float(local.rate), float(local.momentum),
        local.nesterov, float(local.decay), local.decayed, float(alpha), float(gain), chunks.start, chunks.stop,
    )  # fmt: skip


@compiled
def _rows_mean(rows: Array, mean: Array, start: int, stop: int) -> None:
    for a in range(start, stop, PAGES):
        b = min(a + PAGES, stop)
        _mean_of(rows, a, b, mean[a:b])


def rows_mean(rows: Array, mean: Array, *, chunks: range) -> None:
    _rows_mean(rows, mean, *ends(chunks, mean))
