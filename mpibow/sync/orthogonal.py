"""Steps whose matrices go equally far in every direction: each replaced by an orthogonal one that is as long."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from mpibow.graph.formats import pack, physical, unpack
from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout, Span
from mpibow.kernels.passes import FlatKernels
from mpibow.sync.rule import OnChunks

COEFFICIENTS = 3.4445, -4.7750, 2.0315
ITERATIONS = 5
LARGEST = 256


def orthogonal(matrix: Array) -> tuple[Array, float]:
    """|V| O / |O| of V = `matrix` (a, b), Frobenius norms; O is the orthogonal matrix nearest to V, roughly. 0 stays 0.

    And the reach of V, (sum s^8)^(1/8) sqrt(min(a, b)) / |V| with its singular values s: about how many times as long
    the result may be until it goes as far in every direction as V does in its strongest; at least 1.

    With V = P S Q^T the nearest one is P Q^T. Five times X <- 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X from
    V / |V|, which changes singular values alone: those from 0.0015 on are within [0.68, 1.21] then, smaller ones 485
    times as large at most. (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024, for these
    coefficients; Carlson et al., "Stochastic spectral descent", AISTATS 2015, for such steps.) Each of the five
    multiplies X by a polynomial of X X^T; their product is made of the first X X^T alone, and multiplies V once.
    """
    wide = matrix.astype(np.float64)  # in which no square of a float32 overflows or is 0
    norm = np.linalg.norm(wide)
    if norm == 0.0:
        return matrix, 1.0
    tall = matrix.shape[0] > matrix.shape[1]
    x = ((wide.T if tall else wide) / norm).astype(matrix.dtype)
    square = x @ x.T
    strongest = float(np.linalg.norm((square @ square).astype(np.float64))) ** 0.25
    factor = whole = polynomial(square)
    for _ in range(ITERATIONS - 1):
        square = factor @ square @ factor
        factor = polynomial(square)
        whole = factor @ whole
    x = whole @ x
    x *= x.dtype.type(norm / np.linalg.norm(x.astype(np.float64)))
    made: Array = x.T if tall else x
    return made, strongest * len(whole) ** 0.5


def polynomial(square: Array) -> Array:
    """3.4445 - 4.7750 S + 2.0315 S^2 of S = `square` (a, a)."""
    first, third, fifth = (square.dtype.type(each) for each in COEFFICIENTS)
    made: Array = third * square + fifth * (square @ square)
    np.fill_diagonal(made, made.diagonal() + first)
    return made


@dataclass(frozen=True)
class Part:
    """Elements [start, stop) of a replica's flat array: the matrix of one weight, or what stays as it is (None)."""

    start: int
    stop: int
    matrix: Span | None = None

    @property
    def cost(self) -> int:
        """Operations, about: those of `orthogonal`, or one an element."""
        if self.matrix is None:
            return self.stop - self.start
        a, b = sorted(matrix_of(self.matrix.shape))
        return 4 * a * a * b + 2 * a**3 * (4 * ITERATIONS - 2)

    def common(self, step: Array, gain: float, even: float) -> Array:
        """`gain` times the step (stop - start,) of these elements, as they lie.

        A matrix is orthogonal, and `even` times as long; but nowhere longer than `gain` times its strongest direction.
        """
        number, span = step.dtype.type, self.matrix
        made: Array
        if span is None:
            made = number(gain) * step
            return made
        own = unpack(step.reshape(physical(span.format, span.shape)), span.format, span.shape)
        made, reach = orthogonal(own.reshape(matrix_of(span.shape)))
        made = number(min(even, gain * reach)) * made
        return pack(made.reshape(span.shape), span.format).reshape(-1)  # padding is 0


def matrix_of(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a weight of at least two axes: outputs, and all that each is made of."""
    return shape[0], prod(shape[1:])


def parts_of(layout: Layout) -> tuple[Part, ...]:
    """All elements of a replica in parts, the costliest first.

    Matrices whose smaller side a is above LARGEST keep the step that they have: an element takes 4 a to 40 a
    operations here, and in a dense layer 6 an image. LeNet's 1024 x 1024 would take 43 GFLOP, all else of an iteration
    of 128 images 4. With the bound matrices take, beside the gradients of 256 images, in GFLOP: LeNet 0.02 and 7,
    ResNet-20 0.12 and 62, VGG-16 of 32 x 32 images 3.6 and 480 (512 as the bound: 65), ResNet-50 20 and 6,300.
    """
    parts, end = list[Part](), 0
    for span in layout.spans:
        if len(span.shape) > 1 and min(matrix_of(span.shape)) <= LARGEST:
            parts += [Part(end, span.offset), Part(span.offset, span.offset + span.size, span)]
            end = span.offset + span.size
    parts.append(Part(end, layout.size))
    return tuple(sorted((part for part in parts if part.stop > part.start), key=lambda part: -part.cost))


def matrices_of(layout: Layout) -> list[Span]:
    """The matrices that take part, the costliest first."""
    return [part.matrix for part in parts_of(layout) if part.matrix is not None]


def spread(step: Array, parts: Sequence[Part], gain: float = 1.0, even: float = 1.0) -> Array:
    """The step (size,) `gain` times, its matrices orthogonal and up to `even` times (Part.common)."""
    made = np.empty_like(step)
    for part in parts:
        made[part.start : part.stop] = part.common(step[part.start : part.stop], gain, even)
    return made


class Common(Protocol):
    """The common step of one rank's replicas, where it is orthogonal. All ranks make the same one of the same sums."""

    def works(
        self, weights: Array, mean: Array, sums: Any, squares: Array, *, gain: Any, even: float, scale: float
    ) -> Sequence[OnChunks]:
        """What does w_i <- w_i + S(U), for every row i, and mean W <- W + scale U + S(U), one after the other."""
        ...


def common_step(layout: Layout, flat: FlatKernels, dtype: Any) -> Common:
    """What makes it where the kernels' arrays are: the host's threads, or what the kernels have for it."""
    if flat.common_step is None:
        return CommonStep(layout, flat, dtype)
    made: Common = flat.common_step(matrices_of(layout), layout.size, COEFFICIENTS, ITERATIONS)
    return made


class CommonStep:
    """Common, on the host."""

    def __init__(self, layout: Layout, flat: FlatKernels, dtype: Any) -> None:
        self._parts, self._flat = parts_of(layout), flat
        self._step: Array = flat.zeros(layout.size, dtype)

    def works(
        self, weights: Array, mean: Array, sums: Array, squares: Array, *, gain: float, even: float, scale: float
    ) -> tuple[OnChunks, OnChunks]:
        """w_i <- w_i + S(U), for every row i, and mean W <- W + scale U + S(U), in two goes.

        U is the sum of the rows of `sums` (n, size or more), in order, S is `spread`; squares as sma_apply has it.
        Threads share the first by its parts, of which each takes the next until there are none, the costliest first:
        no part's bits depend on who takes it.
        """
        left = deque(self._parts)

        def make(chunks: range) -> None:
            while left:
                try:
                    part = left.popleft()
                except IndexError:  # another thread was faster
                    return
                place = slice(part.start, part.stop)
                total = sums[0, place].copy()
                for row in sums[1:]:
                    total += row[place]
                self._step[place] = part.common(total, gain, even)

        def add(chunks: range) -> None:
            self._flat.sma_apply(weights, mean, sums, squares, gain=0.0, scale=scale, chunks=chunks)
            for target in (weights, mean):
                self._flat.add_scaled(target, self._step, scale=1.0, chunks=chunks)

        return make, add
