"""The passes of `mpibow.kernels.numpy.flat`, arguments and formulas alike, as one loop each, free of the GIL.

They are memory-bound: every element is read and written once. Results are NumPy's to the bit, as no operation is fused
or reordered. Only sums of squares differ: they are float64 throughout. Passes around formulas are generated.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mpibow.graph.graph import Array, Arrays
from mpibow.graph.layout import TILE
from mpibow.kernels.compiled.generated import applying, loops, sending
from mpibow.kernels.compiled.orthogonal import orthogonal as orthogonal
from mpibow.kernels.compiled.steps import BLOCK, PAGES, compiled, cut, ends, gradient_of, mean_of
from mpibow.kernels.compiled.steps import chunk as chunk
from mpibow.kernels.numpy.arrays import *  # noqa: F403
from mpibow.kernels.passes import WHOLE, Half, Local, States


def _rows(rows: Array) -> Array:
    """Rows (k, size) widened to contiguous ones, as the compiled loops require; these use `size` elements of each."""
    if rows.flags.c_contiguous:
        return rows
    return as_strided(rows, (len(rows), rows.strides[0] // rows.itemsize))


def update(
    weights: Array,
    states: States,
    gradients: Array,
    total: Array,
    squares: Array,
    arrays: Arrays,
    *,
    local: Local,
    send: Half,
    begin: bool,
    chunks: range,
    factors: Array = WHOLE,
) -> None:
    values = np.array(send.numbers, np.float64)
    for part, own, limit in local.parts(states, weights.shape[1]):
        sending(part.formula, send.formula).update(
            _rows(weights),
            own,
            _rows(gradients),
            total,
            squares,
            arrays,
            factors,
            part.start,
            limit,
            part.ends,
            part.groups,
            part.scalars,
            values,
            begin,
            chunks.start,
            chunks.stop,
        )


def apply(half: Half, weights: Array, arrays: Arrays, sums: Array, squares: Array, chunks: range) -> None:
    rows, size = _rows(weights) if half.moves else weights[:0], weights.shape[1]
    values = np.array(half.numbers, np.float64)
    applying(half.formula).apply(rows, arrays, _rows(sums), squares, values, size, chunks.start, chunks.stop)


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
    for part, own, limit in local.parts(states, weights.shape[1]):
        loops(part.formula).sma_alone(
            _rows(weights),
            own,
            _rows(gradients),
            sums,
            factors,
            part.start,
            limit,
            part.ends,
            part.groups,
            part.scalars,
            float(alpha),
            float(extra),
            chunks.start,
            chunks.stop,
        )


def sgd_update(
    weights: Array,
    states: States,
    gradients: Array,
    total: Array | None = None,
    *,
    local: Local,
    scale: float,
    chunks: range,
    factors: Array = WHOLE,
) -> None:
    for part, own, limit in local.parts(states, weights.shape[1]):
        loops(part.formula).sgd_update(
            _rows(weights),
            own,
            _rows(gradients),
            factors,
            part.start,
            limit,
            part.ends,
            part.groups,
            part.scalars,
            float(scale),
            *ends(chunks, weights[0]),
        )


@compiled
def _rows_mean(rows: Array, mean: Array, start: int, stop: int) -> None:
    for a in range(start, stop, PAGES):
        b = min(a + PAGES, stop)
        mean_of(rows, a, b, mean[a:b])


def rows_mean(rows: Array, mean: Array, *, chunks: range) -> None:
    _rows_mean(_rows(rows), mean, *ends(chunks, mean))


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
