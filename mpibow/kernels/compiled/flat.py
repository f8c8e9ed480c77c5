"""The passes of `mpibow.kernels.numpy.flat`, arguments and formulas alike, as one loop each, free of the GIL.

They are memory-bound: every element is read and written once. Results are NumPy's to the bit, as no operation is fused
or reordered. Only sums of squares differ: they are float64 throughout. The loops of a local step are in loops.py.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mpibow.graph.graph import Array
from mpibow.graph.layout import TILE
from mpibow.kernels.compiled.generated import loops
from mpibow.kernels.compiled.orthogonal import orthogonal  # noqa: F401
from mpibow.kernels.compiled.steps import (
    BLOCK,
    PAGES,
    chunk,
    compiled,
    copied,
    cut,
    ends,
    gradient_of,
    mean_of,
    plus_square,
    scaled_into,
)
from mpibow.kernels.numpy.arrays import host, meter, put, rows_sum, sum_squares, zeros  # noqa: F401
from mpibow.kernels.passes import WHOLE, Local, States


def _rows(rows: Array) -> Array:
    """Rows (k, size) widened to contiguous ones, as the compiled loops require; these use `size` elements of each."""
    if rows.flags.c_contiguous:
        return rows
    return as_strided(rows, (len(rows), rows.strides[0] // rows.itemsize))


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
    common = common if extra else centre  # its pages are mapped: a masked load from an unmapped page faults each time
    for part, own, limit in local.parts(states, weights.shape[1]):
        loops(part.formula).sma_update(
            _rows(weights), own, _rows(gradients), total, squares, centre, common, factors, part.start, limit,
            part.ends, part.groups, part.scalars, float(alpha), float(extra), begin, chunks.start, chunks.stop,
        )  # fmt: skip


def sma_alone(
    weights: Array, states: States, gradients: Array, sums: Array, *, local: Local, alpha: float, extra: float,
    chunks: range, factors: Array = WHOLE,
) -> None:  # fmt: skip
    for part, own, limit in local.parts(states, weights.shape[1]):
        loops(part.formula).sma_alone(
            _rows(weights), own, _rows(gradients), sums, factors, part.start, limit, part.ends, part.groups,
            part.scalars, float(alpha), float(extra), chunks.start, chunks.stop,
        )  # fmt: skip


def sgd_update(
    weights: Array, states: States, gradients: Array, total: Array | None = None, *, local: Local, scale: float,
    chunks: range, factors: Array = WHOLE,
) -> None:  # fmt: skip
    for part, own, limit in local.parts(states, weights.shape[1]):
        loops(part.formula).sgd_update(
            _rows(weights), own, _rows(gradients), factors, part.start, limit, part.ends, part.groups, part.scalars,
            float(scale), *ends(chunks, weights[0]),
        )  # fmt: skip


@compiled
def _rows_mean(rows: Array, mean: Array, start: int, stop: int) -> None:
    for a in range(start, stop, PAGES):
        b = min(a + PAGES, stop)
        mean_of(rows, a, b, mean[a:b])


def rows_mean(rows: Array, mean: Array, *, chunks: range) -> None:
    _rows_mean(_rows(rows), mean, *ends(chunks, mean))


@compiled
def _sma_apply(
    weights: Array, mean: Array, sums: Array, squares: Array, extra: float, scale: float, more: Array, first: int,
    last: int,
) -> None:  # fmt: skip
    number, total = mean.dtype.type, np.empty(BLOCK, mean.dtype)
    for c in range(first, last):
        square, stop = 0.0, min((c + 1) * chunk, len(mean))
        for a in range(c * chunk, stop, BLOCK):
            b = min(a + BLOCK, stop)
            part = total[: b - a]
            copied(sums[0, a:b], part)
            for row in range(1, len(sums)):
                other = sums[row, a:b]
                for j in range(b - a):
                    part[j] += other[j]
            for j in range(b - a):
                square = plus_square(square, part[j])
            if extra:
                for i in range(len(weights)):
                    scaled_into(weights[i, a:b], part, number(extra))
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
    extra: float,
    scale: float,
    chunks: range,
    more: Array | None = None,
) -> None:
    more = mean[:0] if more is None else more
    _sma_apply(_rows(weights), mean, sums, squares, float(extra), float(scale), more, chunks.start, chunks.stop)


@compiled
def _gradient_sum(gradients: Array, total: Array, factors: Array, start: int, stop: int) -> None:
    made = np.empty(TILE, total.dtype)
    a = start
    while a < stop:
        b, f = cut(a, min(a + BLOCK, stop), factors)
        for i in range(len(gradients)):
            part, g = total[a:b], gradient_of(gradients[i], a, b, factors, f, made)
            for j in range(b - a):
                part[j] = part[j] + g[j] if i else g[j]
        a = b


def gradient_sum(gradients: Array, total: Array, *, chunks: range, factors: Array = WHOLE) -> None:
    _gradient_sum(_rows(gradients), total, factors, *ends(chunks, total))


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
    _add_scaled(_rows(target) if target.ndim == 2 else target[np.newaxis], source, float(scale), *ends(chunks, source))


@compiled
def _squared_norm(array: Array) -> float:
    square = 0.0
    for j in range(len(array)):
        square = plus_square(square, array[j])
    return square


def squared_norm(array: Array) -> float:
    return float(_squared_norm(array))
