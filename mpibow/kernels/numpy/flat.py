"""Passes over flat arrays: they turn gradients into steps, corrections and sums, a cache-sized chunk at a time.

Every pass works on whole chunks of `chunk` elements, so any split over threads gives the same bits.
Shapes: a rank's k replicas are rows of weights, of every state, and of gradients (k, size); all other arrays are
(size,).
`factors` (Layout.factors) are the gradients that are kept as factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


def _step(w: Array, own: Sequence[Array], g: Array, part: slice, local: Local, i: int) -> None:
    """g <- the step u of row i's elements `part`, by the formula; it updates their states `own`."""
    start = 0
    for end, group in zip(local.ends.tolist(), local.groups.tolist(), strict=True):
        stop = min(end, part.stop) - part.start
        if start < stop:
            here = slice(start, stop)
            scalars = dict(zip(local.formula.scalars, local.scalars[i, group].tolist(), strict=True))
            found = local.formula(w[here], g[here], *(state[here] for state in own), **scalars)
            for target, values in zip((g, *own), found, strict=True):
                target[here] = values
            start = stop


def _own(states: States, i: int, part: slice, start: int) -> list[Array]:
    """The states of row i's elements `part`; the states begin at element `start`."""
    return [state[i, part.start - start : part.stop - start] for state in states]


def sma_update(
    weights: Array,
    states: States,
    gradients: Array,
    total: Array,
    squares: Array,
    centre: Array,
    common: Array,
    *,
    local: Local,
    alpha: float,
    extra: float,
    begin: bool,
    chunks: range,
    factors: Array = WHOLE,
) -> None:
    """w_i <- w_i + u_i - alpha (w_i - centre) + extra * common, for every row i in order.

    `common` is a sum of steps, and the common step is `extra` times it: (G - 1) / k (mpibow.sync.gain).
    total <- sum of u_i where `begin`, else total + that sum; squares[c] likewise of chunk c's |u_i|^2 (float64).
    The content of the gradients is undefined afterwards.
    """
    gradients = whole(gradients, factors)
    number = weights.dtype.type
    scratch_all = np.empty(chunk, weights.dtype)
    for each, kept, limit in local.parts(states, weights.shape[1]):
        for c, part in _slices(chunks, limit, each.start):
            scratch = scratch_all[: part.stop - part.start]
            square = 0.0 if begin and part.start == c * chunk else float(squares[c])
            for i in range(len(weights)):
                w, u = weights[i, part], gradients[i, part]
                _step(w, _own(kept, i, part, each.start), u, part, each, i)
                square += float(np.dot(u, u))
                if begin and i == 0:
                    np.copyto(total[part], u)
                else:
                    np.add(total[part], u, out=total[part])
                if alpha:
                    np.subtract(w, centre[part], out=scratch)
                    np.multiply(scratch, number(alpha), out=scratch)
                    np.subtract(u, scratch, out=u)
                if extra:
                    np.multiply(common[part], number(extra), out=scratch)
                    np.add(u, scratch, out=u)
                np.add(w, u, out=w)
            squares[c] = square


def sma_alone(
    weights: Array,
    states: States,
    gradients: Array,
    sums: Array,
    *,
    local: Local,
    alpha: float,
    extra: float,
    chunks: range,
    factors: Array = WHOLE,
) -> None:
    """Pulled averaging of learners that are all this rank's, whole: U = sum of u_i goes into the weights at once.

    w_i <- w_i + u_i - alpha (w_i - W) + extra U, for every row; W is the mean of the rows as they were (`rows_mean`).
    The mean of the rows is then W + (1/k + extra) U, so it is not stored.
    sums[c] <- (sum |u_i|^2, |U|^2) of chunk c, float64. The content of the gradients is undefined afterwards.
    """
    gradients = whole(gradients, factors)
    number = weights.dtype.type
    scratch_all, total_all, mean_all = (np.empty(chunk, weights.dtype) for _ in range(3))
    for each, kept, limit in local.parts(states, weights.shape[1]):
        for c, part in _slices(chunks, limit, each.start):
            length = part.stop - part.start
            scratch, total, mean = scratch_all[:length], total_all[:length], mean_all[:length]
            total.fill(0)
            if alpha:
                _mean_of(weights, part, mean)
            square = 0.0
            for i in range(len(weights)):
                w, u = weights[i, part], gradients[i, part]
                _step(w, _own(kept, i, part, each.start), u, part, each, i)
                square += float(np.dot(u, u))
                np.add(total, u, out=total)
                if alpha:
                    np.subtract(w, mean, out=scratch)
                    np.multiply(scratch, number(alpha), out=scratch)
                    np.subtract(u, scratch, out=u)
                np.add(w, u, out=w)
            found = np.array((square, float(np.dot(total, total))))
            sums[c] = found if part.start == c * chunk else sums[c] + found
            if extra:
                np.multiply(total, number(extra), out=scratch)
                for row in weights:
                    np.add(row[part], scratch, out=row[part])


def rows_mean(rows: Array, mean: Array, *, chunks: range) -> None:
    """mean <- the mean of the rows (k, size): their sum in row order, times 1/k."""
    for _, part in _slices(chunks, mean.size):
        _mean_of(rows, part, mean[part])


def _mean_of(rows: Array, part: slice, mean: Array) -> None:
    np.copyto(mean, rows[0, part])
    for row in rows[1:]:
        np.add(mean, row[part], out=mean)
    np.multiply(mean, mean.dtype.type(1.0 / len(rows)), out=mean)


def sma_apply(
    weights: Array,
    mean: Array,
    sums: Array,
    squares: Array,
    *,
    extra: float,
    scale: float,
    chunks: range,
    more: Array | None = None,
) -> None:
    """w_i <- w_i + extra U, for every row i, and mean W <- W + scale U; U is the sum of the rows of `sums`, in order.

    Then `more` (size,) is added to all of them. sums (n, size or more); squares[c] <- |U|^2 of chunk c, float64.
    """
    number = mean.dtype.type
    total_all, scratch_all = np.empty(chunk, mean.dtype), np.empty(chunk, mean.dtype)
    for c, part in _slices(chunks, mean.size):
        length = part.stop - part.start
        total, scratch = total_all[:length], scratch_all[:length]
        np.copyto(total, sums[0, part])
        for row in sums[1:]:
            np.add(total, row[part], out=total)
        squares[c] = float(np.dot(total, total))
        if extra:
            np.multiply(total, number(extra), out=scratch)
            for row in weights:
                np.add(row[part], scratch, out=row[part])
        np.multiply(total, number(scale), out=total)
        np.add(mean[part], total, out=mean[part])
        if more is not None:
            for row in (*weights, mean):
                np.add(row[part], more[part], out=row[part])


def gradient_sum(gradients: Array, total: Array, *, chunks: range, factors: Array = WHOLE) -> None:
    """total <- the sum of the rows of gradients, in row order."""
    gradients = whole(gradients, factors)
    for _, part in _slices(chunks, gradients.shape[1]):
        np.copyto(total[part], gradients[0, part])
        for row in gradients[1:]:
            np.add(total[part], row[part], out=total[part])


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
    scratch = np.empty(chunk, weights.dtype)
    for each, kept, limit in local.parts(states, weights.shape[1]):
        for _, part in _slices(chunks, limit, each.start):
            w, own, u = weights[0, part], _own(kept, 0, part, each.start), scratch[: part.stop - part.start]
            np.copyto(u, gradients[0, part])
            for row in gradients[1:]:
                np.add(u, row[part], out=u)
            np.multiply(u, weights.dtype.type(scale), out=u)
            _step(w, own, u, part, each, 0)
            np.add(w, u, out=w)
            for i in range(1, len(weights)):
                np.copyto(weights[i, part], w)
                for target, first in zip(_own(kept, i, part, each.start), own, strict=True):
                    np.copyto(target, first)


def centre_update(
    mean: Array, centre: Array, previous: Array, total: Array | None, *, pull: float, alpha: float, momentum: float,
    scale: float, chunks: range,
) -> None:  # fmt: skip
    """W (mean), z (centre) and z_prev (previous) of tests.sync.oracle's `lagging`, from their values at the start.

    z, z_prev <- z + pull (W - z) + momentum (z - z_prev), z      W <- W - alpha (W - z) + scale * total
    `pull` = k alpha, 0 where this iteration is not one of averaging; total None where nothing was received.
    """
    number = mean.dtype.type
    gap_all, move_all = np.empty(chunk, mean.dtype), np.empty(chunk, mean.dtype)
    for _, part in _slices(chunks, mean.size):
        length = part.stop - part.start
        gap, move = gap_all[:length], move_all[:length]
        w, z, z_prev = mean[part], centre[part], previous[part]
        if pull:
            np.subtract(w, z, out=gap)
            np.subtract(z, z_prev, out=move)
            np.copyto(z_prev, z)
            np.multiply(move, number(momentum), out=move)
            np.add(z, move, out=z)
            np.multiply(gap, number(pull), out=move)
            np.add(z, move, out=z)
            np.multiply(gap, number(alpha), out=gap)
            np.subtract(w, gap, out=w)
        if total is not None:
            np.multiply(total[part], number(scale), out=move)
            np.add(w, move, out=w)


def add_scaled(target: Array, source: Array, *, scale: float, chunks: range) -> None:
    """target += scale * source, for target (size,) or every row of target (k, size)."""
    scratch_all = np.empty(chunk, source.dtype)
    rows = target if target.ndim == 2 else target[np.newaxis]
    for _, part in _slices(chunks, source.size):
        scratch = scratch_all[: part.stop - part.start]
        np.multiply(source[part], source.dtype.type(scale), out=scratch)
        for row in rows:
            np.add(row[part], scratch, out=row[part])


def squared_norm(array: Array) -> float:
    """|array|^2 of array (size,): chunks in its precision, their sum in float64. Not finite where an element is not."""
    parts = [array[part] for _, part in _slices(chunks_of(array.size, chunk), array.size)]
    return sum((float(np.dot(part, part)) for part in parts), 0.0)
