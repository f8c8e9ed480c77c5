"""Steps whose matrices go equally far in every direction: each replaced by an orthogonal one that is as long."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from mpibow.graph.formats import pack, physical, unpack
from mpibow.graph.graph import Array, Shape
from mpibow.graph.layout import Layout, Span
from mpibow.kernels.passes import FlatKernels
from mpibow.sync.rule import OnChunks

COEFFICIENTS = 3.4445, -4.7750, 2.0315
ITERATIONS = 5
LARGEST = 256
PIECES = 4
SHARE = 300_000_000  # operations that are worth a thread: many calls of 10 us on two threads take longer than on one


class Room:
    """Arrays that `orthogonal` of n matrices (a, b), a <= b, works in: fresh ones cost it more than its products do."""

    def __init__(self, shape: Shape, dtype: Any) -> None:
        n, a, b = shape
        self.x, self.y = (np.empty((n, a, b), dtype) for _ in range(2))
        self.square, self.power, self.factor, self.whole, self.product = (np.empty((n, a, a), dtype) for _ in range(5))

    def polynomial(self) -> None:
        """power <- S^2 and factor <- 3.4445 - 4.7750 S + 2.0315 S^2 of S = square."""
        first, third, fifth = (self.x.dtype.type(each) for each in COEFFICIENTS)
        np.matmul(self.square, self.square, out=self.power)
        np.multiply(self.power, fifth, out=self.factor)
        np.multiply(self.square, third, out=self.product)
        self.factor += self.product
        diagonal = np.arange(self.factor.shape[1])
        self.factor[:, diagonal, diagonal] += first


def orthogonal(matrices: Array, room: Room | None = None) -> tuple[Array, Array]:
    """|V| O / |O| of each V of `matrices` (n, a, b), Frobenius norms; O is the orthogonal matrix nearest to V, roughly.

    0 stays 0. And the reach of each V (n,), (sum s^8)^(1/8) sqrt(min(a, b)) / |V| with its singular values s: about how
    many times as long the result may be until it goes as far in every direction as V does in its strongest; at least 1.
    The result lies in `room`, where that is given.

    With V = P S Q^T the nearest one is P Q^T. Five times X <- 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X from
    V / |V|, which changes singular values alone: those from 0.0015 on are within [0.68, 1.21] then, smaller ones 485
    times as large at most. (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024, for these
    coefficients; Carlson et al., "Stochastic spectral descent", AISTATS 2015, for such steps.) Each of the five
    multiplies X by a polynomial of X X^T; their product is made of the first X X^T alone, and multiplies V once.
    """
    tall, dtype = matrices.shape[1] > matrices.shape[2], matrices.dtype
    v = matrices.transpose(0, 2, 1) if tall else matrices
    room = room or Room(v.shape, dtype)
    x, y = room.x, room.y
    largest = _or_1(np.maximum(v.max(axis=(1, 2)), -v.min(axis=(1, 2)))[:, np.newaxis, np.newaxis])
    np.divide(v, largest, out=x)  # no square overflows now, or is 0
    lengths = _norms(x)
    np.divide(x, _or_1(lengths), out=x)
    np.matmul(x, x.transpose(0, 2, 1), out=room.square)
    room.polynomial()
    strongest = _norms(room.power) ** 0.25
    np.copyto(room.whole, room.factor)
    for _ in range(ITERATIONS - 1):
        np.matmul(room.factor, room.square, out=room.product)
        np.matmul(room.product, room.factor, out=room.square)
        room.polynomial()
        np.matmul(room.factor, room.whole, out=room.product)
        room.whole, room.product = room.product, room.whole
    np.matmul(room.whole, x, out=y)
    y *= lengths / _or_1(_norms(y))
    y *= largest
    return y.transpose(0, 2, 1) if tall else y, np.maximum(strongest * x.shape[1] ** 0.5, 1.0)[:, 0, 0]


def _norms(matrices: Array) -> Array:
    """Frobenius norms (n, 1, 1)."""
    flat = matrices.reshape(len(matrices), -1)
    return np.sqrt([np.dot(row, row) for row in flat], dtype=matrices.dtype)[:, np.newaxis, np.newaxis]


def _or_1(divisors: Array) -> Array:
    divisors[divisors == 0] = 1
    return divisors


@dataclass(frozen=True)
class Part:
    """Elements of a replica's flat array: matrices of one shape, or [start, stop) that stay as they are."""

    start: int
    stop: int
    matrices: tuple[Span, ...] = ()

    @property
    def cost(self) -> int:
        """Operations, about: those of `orthogonal`, or one an element."""
        if not self.matrices:
            return self.stop - self.start
        return sum(cost_of(span) for span in self.matrices)

    def room(self, dtype: Any) -> Room | None:
        """For `write`."""
        if not self.matrices:
            return None
        return Room((len(self.matrices), *sorted(matrix_of(self.matrices[0].shape))), dtype)

    def write(self, step: Array, total: Array, gain: float, even: float, room: Room | None = None) -> None:
        """These elements of `step` (size,) <- `gain` times those of `total` (size,).

        A matrix is orthogonal, and `even` times as long; but nowhere longer than `gain` times its strongest direction.
        """
        if not self.matrices:
            np.multiply(total[self.start : self.stop], step.dtype.type(gain), out=step[self.start : self.stop])
            return
        rows = []
        for span in self.matrices:
            own = total[span.offset : span.offset + span.size].reshape(physical(span.format, span.shape))
            rows.append(unpack(own, span.format, span.shape).reshape(matrix_of(span.shape)))
        made, reaches = orthogonal(rows[0][np.newaxis] if len(rows) == 1 else np.stack(rows), room)
        for span, matrix, reach in zip(self.matrices, made, reaches, strict=True):
            matrix *= step.dtype.type(min(even, gain * float(reach)))
            place = step[span.offset : span.offset + span.size]
            place[:] = pack(matrix.reshape(span.shape), span.format).reshape(-1)  # padding is 0


def cost_of(span: Span) -> int:
    a, b = sorted(matrix_of(span.shape))
    return 4 * a * a * b + 2 * a**3 * (4 * ITERATIONS - 2)


def matrix_of(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a weight of at least two axes: outputs, and all that each is made of."""
    return shape[0], prod(shape[1:])


def parts_of(layout: Layout) -> tuple[Part, ...]:
    """All elements of a replica in parts, the costliest first: matrices of one shape together, as one call costs less
    than its overhead does, but no more of them than a PIECES-th of all work, so that threads can share it.

    Matrices whose smaller side a is above LARGEST keep the step that they have: an element takes 4 a to 40 a
    operations here, and in a dense layer 6 an image. LeNet's 1024 x 1024 would take 43 GFLOP, all else of an iteration
    of 128 images 4. With the bound matrices take, beside the gradients of 256 images, in GFLOP: LeNet 0.02 and 7,
    ResNet-20 0.12 and 62, VGG-16 of 32 x 32 images 3.6 and 480 (512 as the bound: 65), ResNet-50 20 and 6,300.
    """
    alike: dict[Shape, list[Span]] = {}
    parts, end = list[Part](), 0
    for span in layout.spans:
        if len(span.shape) > 1 and min(matrix_of(span.shape)) <= LARGEST:
            alike.setdefault(matrix_of(span.shape), []).append(span)
            parts.append(Part(end, span.offset))
            end = span.offset + span.size
    parts.append(Part(end, layout.size))
    whole = sum(cost_of(span) for spans in alike.values() for span in spans)
    for spans in alike.values():
        several = max(whole // (PIECES * cost_of(spans[0])), 1)
        for i in range(0, len(spans), several):
            parts.append(Part(spans[i].offset, spans[i].offset, tuple(spans[i : i + several])))
    return tuple(sorted((part for part in parts if part.cost), key=lambda part: -part.cost))


def matrices_of(layout: Layout) -> list[Span]:
    """The matrices that take part, the costliest first."""
    return [span for part in parts_of(layout) for span in part.matrices]


def spread(step: Array, parts: Sequence[Part], gain: float = 1.0, even: float = 1.0) -> Array:
    """The step (size,) `gain` times, its matrices orthogonal and up to `even` times (Part.write)."""
    made = np.empty_like(step)
    for part in parts:
        part.write(made, step, gain, even)
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
        parts = parts_of(layout)
        self._parts, self._flat = [(part, part.room(dtype)) for part in parts], flat
        worth = sum(part.cost for part in parts) // SHARE
        self._threads = max(min(worth, len(os.sched_getaffinity(0))), 1)
        self._step: Array = flat.zeros(layout.size, dtype)

    def works(
        self, weights: Array, mean: Array, sums: Array, squares: Array, *, gain: float, even: float, scale: float
    ) -> tuple[OnChunks, OnChunks]:
        """w_i <- w_i + S(U), for every row i, and mean W <- W + scale U + S(U), in two goes.

        U is the sum of the rows of `sums` (n, size or more), in order, S is `spread`; squares as sma_apply has it.
        Some threads share the first by its parts, of which each takes the next until there are none, the costliest
        first: no part's bits depend on who takes it.
        """
        total = sums[0, : self._step.size]
        if len(sums) > 1:
            total = sums[:, : self._step.size].sum(axis=0)
        left, seats = deque(self._parts), deque(range(self._threads))

        def make(chunks: range) -> None:
            try:
                seats.pop()
            except IndexError:  # more threads would only take the interpreter's lock from each other
                return
            while left:
                try:
                    part, room = left.popleft()
                except IndexError:  # another thread was faster
                    return
                part.write(self._step, total, gain, even, room)

        def add(chunks: range) -> None:
            self._flat.sma_apply(weights, mean, sums, squares, gain=0.0, scale=scale, chunks=chunks)
            for target in (weights, mean):
                self._flat.add_scaled(target, self._step, scale=1.0, chunks=chunks)

        return make, add
