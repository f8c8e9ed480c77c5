"""Parts of the compiled passes over flat arrays: their compilation, and their division into blocks."""

from collections.abc import Callable

import numba
import numpy as np

from mpibow.graph import Array
from mpibow.graph.layout import TILE
from mpibow.kernels.isa import ISA

from .code_cache import PART, F, jit
from .factors import tile

Number = Callable[[float], float]  # the type of an array's elements
Numbers = tuple[float, ...]  # of that type
compiled = jit


def inlined(function: F) -> F:
    return numba.njit(**PART, forceinline=True)(function)


def summed(function: F) -> F:
    """A sum in vector lanes that the compiled code fixes, so its bits are always the same. NaN and inf stay."""
    return numba.njit(**PART, forceinline=True, fastmath={"reassoc", "contract"})(function)


chunk = 16384  # elements: threads get even shares, and the arrays shared by a chunk's rows stay in L2
WIDE = ISA == "AVX-512"
BLOCK = 2048  # elements of a row before the next: what rows share stays in L2


@summed
def _with_square(total: float, x: float) -> float:
    return total + np.float64(x) * np.float64(x)


@inlined
def square_of(x: Array) -> float:
    """|x|^2 in float64, where no square of a float32 overflows."""
    total = 0.0
    for i in range(len(x)):
        total = _with_square(total, x[i])
    return total


@summed
def plus_square(total: float, x: float) -> float:
    """In the type of x, for a block or two: float64 would halve the lanes."""
    return total + x * x


@inlined
def span_of(ends: Array, p: int, a: int) -> int:
    """The span that element `a` lies in, from span p on; `ends` are where spans end."""
    while ends[p] <= a:
        p += 1
    return p


@inlined
def cut(a: int, b: int, factors: Array) -> tuple[int, int]:
    """The end of a block from `a`, at most b; the factors that its gradient is kept as, or -1."""
    for f in range(len(factors)):
        if factors[f, 0] <= a < factors[f, 1]:
            return min(b, factors[f, 1]), f
        if a < factors[f, 0] < b:
            b = factors[f, 0]
    return b, -1


@inlined
def gradient_of(row: Array, a: int, b: int, factors: Array, f: int, made: Array) -> Array:
    """Elements a to b of the gradient in `row`; computed into `made` where it is kept as factors."""
    if f < 0:
        return row[a:b]
    for start in range(a, b, TILE):
        tile(row, factors[f], start, made[start - a : start - a + TILE])
    return made[: b - a]


@inlined
def scaled_into(target: Array, source: Array, scale: float) -> None:
    for j in range(len(target)):
        target[j] += scale * source[j]


@inlined
def copied(source: Array, target: Array) -> None:
    for j in range(len(source)):  # an assignment of slices takes three times as long
        target[j] = source[j]


@inlined
def mean_of(rows: Array, a: int, b: int, mean: Array) -> None:
    """mean <- the mean of the rows' elements a to b, added up in row order."""
    number = mean.dtype.type
    copied(rows[0, a:b], mean)
    for row in rows[1:]:
        scaled_into(mean, row[a:b], number(1))
    share = number(1.0 / len(rows))
    for j in range(b - a):
        mean[j] *= share
