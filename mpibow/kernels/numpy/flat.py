"""Passes over flat arrays: they turn gradients into steps, corrections and sums, a cache-sized chunk at a time.

Every pass works on whole chunks of `chunk` elements, so any split over threads gives the same bits.
Shapes: a rank's k replicas are rows of weights, of every state, and of gradients (k, size); all other arrays are
(size,).
"""

from collections.abc import Iterator

import numpy as np

from mpibow.graph import Array, Arrays
from mpibow.graph.layout import whole
from mpibow.kernels.passes import WHOLE, Half, Local, States, StepArrays

from .arrays import *  # noqa: F403
from .orthogonal import orthogonal as orthogonal

Recorder = None

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


def update(
    step: StepArrays,
    total: Array,
    squares: Array,
    arrays: Arrays,
    *,
    local: Local,
    send: Half,
    begin: bool,
    chunks: range,
) -> None:
    """w_i, summand_i <- send(w_i, u_i, arrays), for every row i in order.

    total <- sum of summands where `begin`, else total + that sum; squares[c] likewise of chunk c's |u_i|^2 (float64). A
    rule that sends nothing leaves `total`, which may be empty. The content of the gradients is undefined afterwards.
    """
    weights = step.weights
    gradients = whole(step.gradients, step.factors)
    for each, kept, limit in local.parts(step):
        for c, part in _slices(chunks, limit, each.start):
            square = 0.0 if begin and part.start == c * chunk else float(squares[c])
            own = [a[part] for a in arrays]
            for i, (w, u) in enumerate(zip(weights[:, part], gradients[:, part], strict=True)):
                _step(each, kept, part, i, w, u)
                square += float(np.dot(u, u))
                w[:], *summand = _results(send, w, u, *own)
                for x in summand:
                    total[part] = x if begin and i == 0 else total[part] + x
            squares[c] = square


def apply(half: Half, weights: Array, arrays: Arrays, sums: Array, squares: Array, chunks: range) -> None:
    """w_i, arrays <- apply(w_i, arrays, U), for every row i where the formula has w; U is the sum of the rows of
    `sums` (n, size or more), in order, 0 if there are none. squares[c] <- |U|^2 of chunk c, float64; it may be empty.
    """
    for c, part in _slices(chunks, weights.shape[1]):
        own = [array[part] for array in arrays]
        rows = list(weights[:, part]) if half.moves else []
        total = _sum(sums, part) if len(sums) else np.zeros(part.stop - part.start, weights.dtype)
        if squares.size:
            squares[c] = float(np.dot(total, total))
        for w in rows[1:]:
            w[:] = _results(half, w, *own, total)[0]
        targets = [*rows[:1], *own]
        for target, values in zip(targets, _results(half, *targets, total), strict=True):
            target[:] = values


def _results(half: Half, *arrays: Array) -> list[Array]:
    """Arrays of their own, not views of `arrays`."""
    return [
        np.array(each) for each in half.formula(*arrays, **dict(zip(half.formula.scalars, half.numbers, strict=True)))
    ]


def sma_alone(step: StepArrays, sums: Array, *, local: Local, alpha: float, extra: float, chunks: range) -> None:
    """Pulled averaging of learners that are all this rank's, whole: U = sum of u_i goes into the weights at once.

    w_i <- w_i + u_i - alpha (w_i - W) + extra U, for every row; W is the mean of the rows as they were (`rows_mean`).
    The mean of the rows is then W + (1/k + extra) U, so it is not stored.
    sums[c] <- (sum |u_i|^2, |U|^2) of chunk c, float64. The content of the gradients is undefined afterwards.
    """
    weights = step.weights
    gradients = whole(step.gradients, step.factors)
    number = weights.dtype.type
    for each, kept, limit in local.parts(step):
        for c, part in _slices(chunks, limit, each.start):
            mean = _mean(weights, part)
            total = np.zeros(part.stop - part.start, number)
            square = 0.0
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


def gradient_sum(gradients: Array, total: Array, *, chunks: range, factors: Array = WHOLE) -> None:
    """total <- the sum of the rows of gradients, in row order."""
    gradients = whole(gradients, factors)
    for _, part in _slices(chunks, gradients.shape[1]):
        total[part] = _sum(gradients, part)


def sgd_update(step: StepArrays, total: Array | None = None, *, local: Local, scale: float, chunks: range) -> None:
    """One step with `scale` times the sum of the gradients' rows (n, size), in row order: it is the same for every row
    of weights and states, and all rows stay equal. There may be fewer of these rows, or more, than gradients.

    `total` (size,), if given, is scratch. Without it there is one gradient, and where a GPU finds it not finite the
    step is left out.
    """
    weights = step.weights
    gradients = whole(step.gradients, step.factors)
    for each, kept, limit in local.parts(step):
        for _, part in _slices(chunks, limit, each.start):
            w = weights[0, part]
            u = _sum(gradients, part)
            u *= weights.dtype.type(scale)
            _step(each, kept, part, 0, w, u)
            w += u
            weights[1:, part] = w
            for state in kept:
                rows = state[:, part.start - each.start : part.stop - each.start]
                rows[1:] = rows[0]
