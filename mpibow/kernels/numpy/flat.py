"""Passes over flat arrays: they turn gradients into steps, corrections and sums, a cache-sized chunk at a time.

Every pass works on whole chunks of `chunk` elements, so any split over threads gives the same bits.
Shapes: a rank's k replicas are rows of weights, of every state, and of gradients (k, size); all other arrays are
(size,).
`factors` (Layout.factors) are the gradients that are kept as factors.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import whole
from mpibow.kernels.numpy.arrays import host, meter, put, rows_sum, sum_squares, zeros  # noqa: F401
from mpibow.kernels.numpy.orthogonal import orthogonal  # noqa: F401
from mpibow.kernels.passes import WHOLE, Local, States, chunks_of

chunk = 131072  # elements. Smaller ones fit caches better, but threads then spend their time waiting for the GIL


def _slices(chunks: range, stop: int, start: int = 0) -> Iterator[tuple[int, slice]]:
    """Each chunk's elements in [start, stop); chunks without any are left out."""
    for i in chunks:
        part = slice(max(i * chunk, start), min((i + 1) * chunk, stop))
        if part.start < part.stop:
            yield i, part


def _step(local: Local, states: States, part: slice, i: int, w: Array, g: Array) -> None:
    """g <- the step u of row i's elements `part`, by the formula; it updates their states."""
    start = 0
    for end, group in zip(local.ends.tolist(), local.groups.tolist(), strict=True):
        stop = min(end, part.stop) - part.start
        if start < stop:
            here = slice(start, stop)
            own = [state[i, part.start - local.start + start : part.start - local.start + stop] for state in states]
            scalars = dict(zip(local.formula.scalars, local.scalars[i, group].tolist(), strict=True))
            found = local.formula(w[here], g[here], *own, **scalars)
            for target, values in zip((g[here], *own), found, strict=True):
                target[:] = values
            start = stop


def _sum(rows: Array, part: slice) -> Array:
    """The sum of the rows' elements `part`, in row order."""
    total: Array = rows[0, part].copy()
    for row in rows[1:]:
        total += row[part]
    return total


def sma_update(
    weights: Array, states: States, gradients: Array, total: Array, squares: Array, centre: Array, common: Array, *,
    local: Local, alpha: float, extra: float, begin: bool, chunks: range, factors: Array = WHOLE,
) -> None:  # fmt: skip
    """w_i <- w_i + u_i - alpha (w_i - centre) + extra * common, for every row i in order.

    `common` is a sum of steps, and the common step is `extra` times it: (G - 1) / k (mpibow.sync.gain).
    total <- sum of u_i where `begin`, else total + that sum; squares[c] likewise of chunk c's |u_i|^2 (float64).
    The content of the gradients is undefined afterwards.
    """
    gradients, number = whole(gradients, factors), weights.dtype.type
    for each, kept, limit in local.parts(states, weights.shape[1]):
        for c, part in _slices(chunks, limit, each.start):
            square = 0.0 if begin and part.start == c * chunk else float(squares[c])
            for i, (w, u) in enumerate(zip(weights[:, part], gradients[:, part], strict=True)):
                _step(each, kept, part, i, w, u)
                square += float(np.dot(u, u))
                total[part] = u if begin and i == 0 else total[part] + u
                if alpha:
                    u -= number(alpha) * (w - centre[part])
                if extra:
                    u += number(extra) * common[part]
                w += u
            squares[c] = square


def sma_alone(
    weights: Array, states: States, gradients: Array, sums: Array, *, local: Local, alpha: float, extra: float,
    chunks: range, factors: Array = WHOLE,
) -> None:  # fmt: skip
    """Pulled averaging of learners that are all this rank's, whole: U = sum of u_i goes into the weights at once.

    w_i <- w_i + u_i - alpha (w_i - W) + extra U, for every row; W is the mean of the rows as they were (`rows_mean`).
    The mean of the rows is then W + (1/k + extra) U, so it is not stored.
    sums[c] <- (sum |u_i|^2, |U|^2) of chunk c, float64. The content of the gradients is undefined afterwards.
    """
    gradients, number = whole(gradients, factors), weights.dtype.type
    for each, kept, limit in local.parts(states, weights.shape[1]):
        for c, part in _slices(chunks, limit, each.start):
            mean, total, square = _mean(weights, part), np.zeros(part.stop - part.start, number), 0.0
            for i, (w, u) in enumerate(zip(weights[:, part], gradients[:, part], strict=True)):
                _step(each, kept, part, i, w, u)
                square += float(np.dot(u, u))
                total += u
                if alpha:
                    u -= number(alpha) * (w - mean)
                w += u
            found = np.array((square, float(np.dot(total, total))))
            sums[c] = found if part.start == c * chunk else sums[c] + found
            if extra:
                weights[:, part] += number(extra) * total


def rows_mean(rows: Array, mean: Array, *, chunks: range) -> None:
    """mean <- the mean of the rows (k, size): their sum in row order, times 1/k."""
    for _, part in _slices(chunks, mean.size):
        mean[part] = _mean(rows, part)


def _mean(rows: Array, part: slice) -> Array:
    mean = _sum(rows, part)
    mean *= mean.dtype.type(1.0 / len(rows))
    return mean


def sma_apply(
    weights: Array, mean: Array, sums: Array, squares: Array, *, extra: float, scale: float, chunks: range,
    more: Array | None = None,
) -> None:  # fmt: skip
    """w_i <- w_i + extra U, for every row i, and mean W <- W + scale U; U is the sum of the rows of `sums`, in order.

    Then `more` (size,) is added to all of them. sums (n, size or more); squares[c] <- |U|^2 of chunk c, float64.
    """
    number = mean.dtype.type
    for c, part in _slices(chunks, mean.size):
        total = _sum(sums, part)
        squares[c] = float(np.dot(total, total))
        if extra:
            weights[:, part] += number(extra) * total
        mean[part] += number(scale) * total
        if more is not None:
            for rows in (weights, mean):
                rows[..., part] += more[part]


def gradient_sum(gradients: Array, total: Array, *, chunks: range, factors: Array = WHOLE) -> None:
    """total <- the sum of the rows of gradients, in row order."""
    gradients = whole(gradients, factors)
    for _, part in _slices(chunks, gradients.shape[1]):
        total[part] = _sum(gradients, part)


def sgd_update(
    weights: Array, states: States, gradients: Array, total: Array | None = None, *, local: Local, scale: float,
    chunks: range, factors: Array = WHOLE,
) -> None:  # fmt: skip
    """One step with `scale` times the sum of the gradients' rows (n, size), in row order: it is the same for every row
    of weights and states, and all rows stay equal. There may be fewer of these rows, or more, than gradients.

    `total` (size,), if given, is scratch. Without it there is one gradient, and where a GPU finds it not finite the
    step is left out.
    """
    gradients = whole(gradients, factors)
    for each, kept, limit in local.parts(states, weights.shape[1]):
        for _, part in _slices(chunks, limit, each.start):
            w, u = weights[0, part], _sum(gradients, part)
            u *= weights.dtype.type(scale)
            _step(each, kept, part, 0, w, u)
            w += u
            weights[1:, part] = w
            for state in kept:
                rows = state[:, part.start - each.start : part.stop - each.start]
                rows[1:] = rows[0]


def centre_update(
    mean: Array, centre: Array, previous: Array, total: Array | None, *, pull: float, alpha: float, momentum: float,
    scale: float, chunks: range,
) -> None:  # fmt: skip
    """W (mean), z (centre) and z_prev (previous), from their values at the start.

    z, z_prev <- z + pull (W - z) + momentum (z - z_prev), z      W <- W - alpha (W - z) + scale * total
    `pull` = k alpha, 0 where this iteration is not one of averaging; total None where nothing was received.
    These are the formulas of `lagging` in tests/sync/oracle.py of the repository.
    """
    number = mean.dtype.type
    for _, part in _slices(chunks, mean.size):
        w, z, z_prev = mean[part], centre[part], previous[part]
        if pull:
            gap, move = w - z, z - z_prev
            z_prev[:] = z
            z += number(momentum) * move
            z += number(pull) * gap
            w -= number(alpha) * gap
        if total is not None:
            w += number(scale) * total[part]


def add_scaled(target: Array, source: Array, *, scale: float, chunks: range) -> None:
    """target += scale * source, for target (size,) or every row of target (k, size)."""
    for _, part in _slices(chunks, source.size):
        target[..., part] += source.dtype.type(scale) * source[part]


def squared_norm(array: Array) -> float:
    """|array|^2 of array (size,): chunks in its precision, their sum in float64. Not finite where an element is not."""
    parts = [array[part] for _, part in _slices(chunks_of(array.size, chunk), array.size)]
    return sum((float(np.dot(part, part)) for part in parts), 0.0)
