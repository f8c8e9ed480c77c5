"""The passes of `mpibow.kernels.numpy.flat`, arguments and formulas alike, as one loop each, free of the GIL.

Memory is what bounds them: every element is read and written once. Results are NumPy's to the bit, as no operation is
fused or reordered, but for sums of squares, which are float64 throughout, and momenta below TINY, which become 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import TILE
from mpibow.kernels.compiled.alone import rows_mean, sma_alone
from mpibow.kernels.compiled.orthogonal import orthogonal
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
from mpibow.kernels.numpy.arrays import common_step, host, meter, put, rows_sum, sum_squares, zeros  # noqa: F401
from mpibow.kernels.passes import WHOLE, Local, Matrix, States


@inlined
def _sma_row(
    w: Array, v: Array, g: Array, total: Array, centre: Array, common: Array, rate: Any, momentum: Any, nesterov: bool,
    decay: Any, tiny: Any, alpha: Any, gain: Any, begin: bool,
) -> float:  # fmt: skip
    """A part of one row; its |u|^2."""
    square = 0.0
    for j in range(len(w)):
        after, u = step(w[j], v[j], g[j], rate, momentum, nesterov, decay, tiny)
        if momentum:
            v[j] = after
        square = plus_square(square, u)
        total[j] = u if begin else total[j] + u
        if alpha:
            u = u - alpha * (w[j] - centre[j])
        if gain:
            u = u + gain * common[j]
        w[j] += u
    return square


@compiled
def _sma_update(
    weights: Array, momenta: Array, gradients: Array, total: Array, squares: Array, centre: Array, common: Array,
    factors: Array, rate: float, momentum: float, nesterov: bool, decay: float, decayed: int, alpha: float, gain: float,
    begin: bool, first: int, last: int,
) -> None:  # fmt: skip
    number, (k, size) = weights.dtype.type, weights.shape
    block = BLOCK if k > 1 else chunk
    made, spare = np.empty(TILE, weights.dtype), np.zeros(block, weights.dtype)
    for c in range(first, last):
        square = 0.0 if begin else squares[c]
        stop = min((c + 1) * chunk, size)
        for row in range(0, k, 2):
            a = c * chunk
            while a < stop:
                b, f = cut(a, min(a + block, stop), decayed, factors)
                for i in range(row, min(row + 2, k)):
                    g = gradient_of(gradients[i], a, b, factors, f, made)
                    square += _sma_row(
                        weights[i, a:b], momenta_of(momenta[i], a, b, momentum, spare), g, total[a:b], centre[a:b],
                        common[a:b],
                        number(-rate), number(momentum), nesterov, number(decay if a < decayed else 0.0), number(TINY),
                        number(alpha), number(gain), begin and i == 0,
                    )  # fmt: skip
                a = b
        squares[c] = square


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
    gain: float,
    begin: bool,
    chunks: range,
    factors: Array = WHOLE,
) -> None:
    common = common if gain else centre  # pages that are there, and not written meanwhile: see momenta_of
    _sma_update(
        weights, only(states, weights), gradients, total, squares, centre, common, factors, float(local.rate),
        float(local.momentum), local.nesterov, float(local.decay), local.decayed, float(alpha), float(gain), begin,
        chunks.start, chunks.stop,
    )  # fmt: skip


@inlined
def _copy(source: Array, target: Array) -> None:
    for j in range(len(source)):  # an assignment of slices takes three times as long
        target[j] = source[j]


@compiled
def _sma_apply(
    weights: Array, mean: Array, sums: Array, squares: Array, gain: float, scale: float, more: Array, first: int,
    last: int,
) -> None:  # fmt: skip
    number, total = mean.dtype.type, np.empty(BLOCK, mean.dtype)
    for c in range(first, last):
        square, stop = 0.0, min((c + 1) * chunk, len(mean))
        for a in range(c * chunk, stop, BLOCK):
            b = min(a + BLOCK, stop)
            part = total[: b - a]
            _copy(sums[0, a:b], part)
            for row in range(1, len(sums)):
                other = sums[row, a:b]
                for j in range(b - a):
                    part[j] += other[j]
            for j in range(b - a):
                square = plus_square(square, part[j])
            if gain:
                for i in range(len(weights)):
                    scaled_into(weights[i, a:b], part, number(gain))
            scaled_into(mean[a:b], part, number(scale))
            if len(more):
                for i in range(len(weights)):
                    scaled_into(weights[i, a:b], more[a:b], number(1.0))
                scaled_into(mean[a:b], more[a:b], number(1.0))
        squares[c] = square


def sma_apply(
    weights: Array,
    mean: Array,
    sums: Array,
    squares: Array,
    *,
    gain: float,
    scale: float,
    chunks: range,
    more: Array | None = None,
) -> None:
    more = mean[:0] if more is None else more
    _sma_apply(weights, mean, sums, squares, float(gain), float(scale), more, chunks.start, chunks.stop)


@compiled
def _gradient_sum(gradients: Array, total: Array, factors: Array, start: int, stop: int) -> None:
    made = np.empty(TILE, total.dtype)
    a = start
    while a < stop:
        b, f = cut(a, min(a + BLOCK, stop), 0, factors)
        for i in range(len(gradients)):
            part, g = total[a:b], gradient_of(gradients[i], a, b, factors, f, made)
            for j in range(b - a):
                part[j] = part[j] + g[j] if i else g[j]
        a = b


def gradient_sum(gradients: Array, total: Array, *, chunks: range, factors: Array = WHOLE) -> None:
    _gradient_sum(gradients, total, factors, *ends(chunks, total))


@inlined
def _sgd_row(
    w: Array, v: Array, gradient: Array, scale: Any, rate: Any, momentum: Any, nesterov: bool, decay: Any, tiny: Any
) -> None:
    for j in range(len(w)):
        after, u = step(w[j], v[j], scale * gradient[j], rate, momentum, nesterov, decay, tiny)
        if momentum:
            v[j] = after
        w[j] += u


@compiled
def _sgd_update(
    weights: Array, momenta: Array, gradient: Array, factors: Array, rate: float, momentum: float, nesterov: bool,
    decay: float, decayed: int, scale: float, start: int, stop: int,
) -> None:  # fmt: skip
    number = weights.dtype.type
    made, spare = np.empty(TILE, weights.dtype), np.zeros(BLOCK, weights.dtype)
    a = start
    while a < stop:
        b, f = cut(a, min(a + BLOCK, stop), decayed, factors)
        _sgd_row(
            weights[0, a:b], momenta_of(momenta[0], a, b, momentum, spare),
            gradient_of(gradient, a, b, factors, f, made), number(scale),
            number(-rate), number(momentum), nesterov, number(decay if a < decayed else 0.0), number(TINY),
        )  # fmt: skip
        for i in range(1, len(weights)):
            _copy(weights[0, a:b], weights[i, a:b])
            if momentum:
                _copy(momenta[0, a:b], momenta[i, a:b])
        a = b


def sgd_update(
    weights: Array, states: States, gradient: Array, *, local: Local, scale: float, chunks: range,
    factors: Array = WHOLE,
) -> None:  # fmt: skip
    _sgd_update(
        weights, only(states, weights), gradient, factors, float(local.rate), float(local.momentum), local.nesterov,
        float(local.decay), local.decayed, float(scale), *ends(chunks, gradient),
    )  # fmt: skip


@compiled
def _centre_update(
    mean: Array, centre: Array, previous: Array, total: Array, received: bool, pull: float, alpha: float,
    momentum: float, scale: float,
) -> None:  # fmt: skip
    number = mean.dtype.type
    pull_, alpha_, momentum_, scale_ = number(pull), number(alpha), number(momentum), number(scale)
    for j in range(len(mean)):
        w, z = mean[j], centre[j]
        gap = w - z
        centre[j] = z + momentum_ * (z - previous[j]) + pull_ * gap
        previous[j] = z
        w = w - alpha_ * gap
        mean[j] = w + scale_ * total[j] if received else w


def centre_update(
    mean: Array, centre: Array, previous: Array, total: Array | None, *, pull: float, alpha: float, momentum: float,
    scale: float, chunks: range,
) -> None:  # fmt: skip
    part = slice(*ends(chunks, mean))
    if pull:
        received, sums = (False, mean) if total is None else (True, total)
        _centre_update(
            mean[part], centre[part], previous[part], sums[part], received,
            float(pull), float(alpha), float(momentum), float(scale),
        )  # fmt: skip
    elif total is not None:
        add_scaled(mean, total, scale=scale, chunks=chunks)


@compiled
def _add_scaled(rows: Array, source: Array, scale: float, start: int, stop: int) -> None:
    number = source.dtype.type(scale)
    for a in range(start, stop, BLOCK):
        b = min(a + BLOCK, stop)
        for i in range(len(rows)):
            row, part = rows[i, a:b], source[a:b]
            for j in range(b - a):
                row[j] += number * part[j]


def add_scaled(target: Array, source: Array, *, scale: float, chunks: range) -> None:
    _add_scaled(target if target.ndim == 2 else target[np.newaxis], source, float(scale), *ends(chunks, source))


@compiled
def _squared_norm(array: Array) -> float:
    square = 0.0
    for j in range(len(array)):
        square = plus_square(square, array[j])
    return square


def squared_norm(array: Array) -> float:
    return float(_squared_norm(array))


def prepare() -> None:
    """Compiles the passes for float32, or loads them from disk: seconds that belong to no iteration."""
    rows, flat, squares = np.zeros((1, 1), np.float32), np.zeros(1, np.float32), np.zeros(1)
    local, chunks = Local(0.0, 0.0, False, 0.0, 0), range(1)
    sma_update(rows, (), rows, flat, squares, flat, flat, local=local, alpha=0, gain=0, begin=True, chunks=chunks)
    sma_alone(rows, (), rows, np.zeros((1, 2)), local=local, alpha=0, gain=0, chunks=chunks)
    rows_mean(rows, flat, chunks=chunks)
    sma_apply(rows, flat, rows, squares, gain=0, scale=0, chunks=chunks)
    gradient_sum(rows, flat, chunks=chunks)
    sgd_update(rows, (), flat, local=local, scale=0, chunks=chunks)
    centre_update(flat, flat, flat, flat, pull=1, alpha=0, momentum=0, scale=0, chunks=chunks)
    add_scaled(flat, flat, scale=0, chunks=chunks)
    squared_norm(flat)
    one = np.zeros(1, np.int64)
    orthogonal([Matrix(one, one)], np.float32)(flat, flat, 0, gain=0, even=0)
