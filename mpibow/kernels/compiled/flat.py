"""The passes of `mpibow.kernels.numpy.flat`, arguments and formulas alike, as one loop each, free of the GIL.

They are memory-bound: every element is read and written once. Results are NumPy's to the bit, as no operation is fused
or reordered. Only sums of squares differ: those of steps have the elements' type within a block, all others are
float64. Passes around formulas are generated.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mpibow.graph import Array, Arrays
from mpibow.kernels.numpy.arrays import *  # noqa: F403
from mpibow.kernels.passes import WHOLE, Half, Local, StepArrays

from .generated import applying, loops, sending
from .orthogonal import orthogonal as orthogonal
from .recorder import Recorder as Recorder
from .steps import BLOCK, chunk as chunk, compiled, cut, gradient_of, mean_of

Do = Callable[..., object]  # calls a function, or records the call


def _call(function: Do, *arguments: object) -> None:
    function(*arguments)


def _rows(rows: Array) -> Array:
    """Rows (k, size) widened to contiguous ones, as the compiled loops require; these use `size` elements of each."""
    if rows.flags.c_contiguous:
        return rows
    return as_strided(rows, (len(rows), rows.strides[0] // rows.itemsize))


def _parts(step: StepArrays, local: Local) -> Iterator[tuple[Local, tuple[object, ...]]]:
    """Each part of the local step, and the arguments that its loops begin with."""
    weights = _rows(step.weights)
    gradients = _rows(step.gradients)
    for part, states, limit in local.parts(step):
        spans = part.start, limit, part.ends, part.groups, part.scalars
        yield part, (weights, states, gradients, step.factors, *spans)


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
    do: Do = _call,
) -> None:
    values = np.array(send.numbers, np.float64)
    for part, first in _parts(step, local):
        module = sending(part.formula, send.formula)
        do(module.update, *first, total, squares, arrays, values, begin, chunks.start, chunks.stop)


def apply(
    half: Half, weights: Array, arrays: Arrays, sums: Array, squares: Array, chunks: range, do: Do = _call
) -> None:
    rows = _rows(weights) if half.moves else weights[:0]
    size = weights.shape[1]
    values = np.array(half.numbers, np.float64)
    do(applying(half.formula).apply, rows, arrays, _rows(sums), squares, values, size, chunks.start, chunks.stop)


def sma_alone(
    step: StepArrays, sums: Array, *, local: Local, alpha: float, extra: float, chunks: range, do: Do = _call
) -> None:
    for part, first in _parts(step, local):
        numbers = float(alpha), float(extra), chunks.start, chunks.stop
        do(loops(part.formula).sma_alone, *first, sums, *numbers)


def sgd_update(
    step: StepArrays, total: Array | None = None, *, local: Local, scale: float, chunks: range, do: Do = _call
) -> None:
    for part, first in _parts(step, local):
        do(loops(part.formula).sgd_update, *first, float(scale), chunks.start, chunks.stop)


@compiled
def _rows_mean(rows: Array, mean: Array, first: int, last: int) -> None:
    stop = min(last * chunk, len(mean))
    for a in range(first * chunk, stop, BLOCK):
        b = min(a + BLOCK, stop)
        mean_of(rows, a, b, mean[a:b])


def rows_mean(rows: Array, mean: Array, *, chunks: range) -> None:
    _rows_mean(_rows(rows), mean, chunks.start, chunks.stop)


@compiled
def _gradient_sum(gradients: Array, total: Array, factors: Array, first: int, last: int) -> None:
    made = np.empty(BLOCK, total.dtype)
    a = first * chunk
    stop = min(last * chunk, len(total))
    while a < stop:
        b, f = cut(a, min(a + BLOCK, stop), factors)
        for i in range(len(gradients)):
            part = total[a:b]
            g = gradient_of(gradients[i], a, b, factors, f, made)
            for j in range(b - a):
                part[j] = part[j] + g[j] if i else g[j]
        a = b


def gradient_sum(gradients: Array, total: Array, *, chunks: range, factors: Array = WHOLE, do: Do = _call) -> None:
    do(_gradient_sum, _rows(gradients), total, factors, chunks.start, chunks.stop)
