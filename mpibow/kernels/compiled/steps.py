"""What the compiled passes over flat arrays are made of: how they are compiled, cut into blocks, and a local step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import TILE
from mpibow.kernels.compiled.command import helpers
from mpibow.kernels.compiled.factors import tile
from mpibow.kernels.passes import States

F = TypeVar("F", bound=Callable[..., Any])
_njit = cast(Any, numba.njit)  # some versions have types, which differ


def compiled(function: F) -> F:
    function.__qualname__ += f"_{helpers():08x}"  # numba's cache does not see that other files' code is in it
    return cast(F, _njit(nogil=True, cache=True)(function))


inlined: Callable[[F], F] = _njit(nogil=True, forceinline=True)
# A sum in vector lanes; which ones, the code says, so its bits are always the same. NaN and inf stay what they are.
summed: Callable[[F], F] = _njit(nogil=True, forceinline=True, fastmath={"reassoc", "contract"})

chunk = 16384  # elements: threads get even shares, and what a chunk's rows have in common stays in L2
BLOCK = TILE  # elements: what two rows have in common stays in L1; of more rows at once the prefetcher loses track
TINY = 1e-30  # a dead unit's momentum decays into denormals and stays there: 2 to 3 times the time, seen on Zen 4


@summed
def plus_square(total: float, x: Any) -> float:
    wide = np.float64(x)  # in which no square of a float32 overflows or is denormal
    return total + wide * wide


@inlined
def step(w: Any, v: Any, g: Any, rate: Any, momentum: Any, nesterov: bool, decay: Any, tiny: Any) -> tuple[Any, Any]:
    """An element's (v', u). The conditions hold for all elements alike: the compiler makes a loop for each case."""
    if decay:
        g = g + decay * w
    if not momentum:
        return v, rate * g
    v = momentum * v + g
    if abs(v) < tiny:
        v = v - v  # 0 of its own type
    return v, rate * (g + momentum * v if nesterov else v)


@inlined
def cut(a: int, b: int, decayed: int, factors: Array) -> tuple[int, int]:
    """The end of a block from `a`, at most b, all decayed or not; the factors that its gradient is kept as, or -1."""
    if a < decayed < b:
        b = decayed
    for f in range(len(factors)):
        if factors[f, 0] <= a < factors[f, 1]:
            return min(b, a + TILE), f
        if a < factors[f, 0] < b:
            b = factors[f, 0]
    return b, -1


@inlined
def gradient_of(row: Array, a: int, b: int, factors: Array, f: int, made: Array) -> Array:
    """Elements a to b of the gradient in `row`; computed into `made` where it is kept as factors."""
    if f < 0:
        return row[a:b]
    tile(row, factors[f], a, made)
    return made[: b - a]


def ends(chunks: range, array: Array) -> tuple[int, int]:
    """The elements of `array` (size,) that the chunks cover."""
    return chunks.start * chunk, min(chunks.stop * chunk, array.size)


@inlined
def scaled_into(target: Array, source: Array, scale: Any) -> None:
    for j in range(len(target)):
        target[j] += scale * source[j]


@inlined
def momenta_of(row: Array, a: int, b: int, momentum: Any, spare: Array) -> Array:
    """Elements a to b of the momenta in `row`; where there is no momentum, of `spare`, whose pages are there.

    Vector code masks out what a 0 makes useless, but a masked load from a page that nobody has touched yet, as those of
    momenta that are not kept, faults each time, which the system does not see: up to 40 times the whole pass.
    """
    return row[a:b] if momentum else spare[: b - a]


def only(states: States, weights: Array) -> Array:
    """The one state that there may be, else the weights: an array that nobody reads."""
    return states[0] if states else weights
