"""Muon's step (Jordan et al., 2024): every matrix of a step is replaced by an orthogonal one that is as long."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout, Span
from mpibow.kernels.matrices import cost_of, matrix_of, place_of
from mpibow.kernels.numpy.orthogonal import COEFFICIENTS, ITERATIONS, orthogonal
from mpibow.kernels.passes import FlatKernels, Local
from mpibow.sync.rule import OnChunks

LARGEST = 256


def matrices_of(layout: Layout) -> list[Span]:
    """The matrices that take part, the costliest first.

    A matrix whose smaller side a is above LARGEST keeps the step that it has: an element takes 4 a to 38 a
    operations here, and in a dense layer 6 an image. LeNet's 1024 x 1024 would take 41 GFLOP, all else of an iteration
    of 128 images 4. With the bound matrices take, beside the gradients of 256 images, in GFLOP: LeNet 0.02 and 7,
    ResNet-20 0.12 and 62, VGG-16 of 32 x 32 images 3.5 and 480 (512 as the bound: 63), ResNet-50 19 and 6,300.
    """
    spans = [span for span in layout.spans if len(span.shape) > 1 and min(matrix_of(span.shape)) <= LARGEST]
    return sorted(spans, key=lambda span: -cost_of(span))


def rest_of(layout: Layout) -> list[slice]:
    """All other elements of a replica's flat array."""
    found, end = [], 0
    for span in sorted(matrices_of(layout), key=lambda span: span.offset):
        found.append(slice(end, span.offset))
        end = span.offset + span.size
    return [each for each in (*found, slice(end, layout.size)) if each.start < each.stop]


def shrinks_of(local: Local, spans: Sequence[Span]) -> list[float]:
    """The share of each matrix's weights that decoupled weight decay takes off in this step; 0 without such decay."""
    found = []
    for span in spans:
        part = next(each for each in (local, *local.beside) if span.offset < int(each.ends[-1]))
        group = part.groups[np.searchsorted(part.ends, span.offset, side="right")]
        own = dict(zip(part.formula.scalars, part.scalars[0, group].tolist(), strict=True))
        found.append(own["matrix_shrink"] if own.get("is_matrix") else own.get("shrink", 0.0))
    return found


def spread(step: Array, layout: Layout, gain: float = 1.0, even: float = 1.0) -> Array:
    """The step (size,) `gain` times; but its matrices are orthogonal, as long as they are, and `even` times.

    The result is bounded by `gain` times their strongest direction, roughly; see mpibow.kernels.numpy.orthogonal.
    """
    made: Array = step * step.dtype.type(gain)
    spans = matrices_of(layout)
    make = orthogonal([place_of(span) for span in spans], step.dtype)
    for number in range(len(spans)):
        make(made, step, number, gain=gain, even=even)
    return made


class Common(Protocol):
    """The common step of one rank's replicas, where it is orthogonal. All ranks make the same one of the same sums."""

    def works(
        self, weights: Array, mean: Array, sums: Any, squares: Array, *, extra: Any, even: float, scale: float,
        shrinks: Sequence[float] = (),
    ) -> Sequence[OnChunks]:  # fmt: skip
        """The passes w_i <- w_i + S(U), for every row i, and mean W <- W + scale U + S(U), one after the other.

        `shrinks`, of each matrix, is the share of W that weight decay has taken off in U: it is no part of the
        direction, and S takes `extra` times as much off. () is none; a GPU takes no other.
        """
        ...


def common_step(layout: Layout, flat: FlatKernels, dtype: Any) -> Common:
    """The common step on the device of the kernels' arrays: by the host's threads, or by the kernels' own."""
    if flat.common_step is None:
        return CommonStep(layout, flat, dtype)
    made: Common = flat.common_step(matrices_of(layout), layout.size, COEFFICIENTS, ITERATIONS)
    return made


class CommonStep:
    """Common, on the host."""

    def __init__(self, layout: Layout, flat: FlatKernels, dtype: Any) -> None:
        self._flat, self._rest = flat, rest_of(layout)
        self._spans = [slice(span.offset, span.offset + span.size) for span in matrices_of(layout)]
        self._matrices, self._dtype = [place_of(span) for span in matrices_of(layout)], dtype
        # The makers of matrices, to be used again by threads: the last one is in a cache.
        self._makers = deque[Callable[..., None]]()
        self._step, self._total = (flat.zeros(layout.size, dtype) for _ in range(2))

    def works(
        self, weights: Array, mean: Array, sums: Array, squares: Array, *, extra: float, even: float, scale: float,
        shrinks: Sequence[float] = (),
    ) -> tuple[OnChunks, OnChunks]:  # fmt: skip
        """w_i <- w_i + S(U), for every row i, and mean W <- W + scale U + S(U), in two goes.

        U is the sum of the rows of `sums` (n, size or more), in order, S is `spread`; squares as sma_apply has it.
        Threads share the first by its matrices, of which each takes the next until there are none, the costliest
        first, no bits depending on who takes it; all else by chunks.
        """
        chunk, total = self._flat.chunk, sums[0, : self._step.size]
        if len(sums) > 1:
            total = np.sum(sums[:, : self._step.size], axis=0, out=self._total)
        left = deque(range(len(self._matrices)))

        def make(chunks: range) -> None:
            for part in self._rest:
                own = slice(max(part.start, chunks.start * chunk), min(part.stop, chunks.stop * chunk))
                if own.start < own.stop:
                    np.multiply(total[own], total.dtype.type(extra), out=self._step[own])
            maker = None
            with suppress(IndexError):  # there are no more
                while left:
                    number = left.popleft()
                    maker = maker or self._maker()
                    own, decay = self._spans[number], self._decay(number, mean, shrinks)
                    if decay is not None:
                        np.add(total[own], decay, out=self._step[own])
                    maker(self._step, total if decay is None else self._step, number, gain=extra, even=even)
                    if decay is not None:
                        self._step[own] -= total.dtype.type(extra) * decay
            if maker is not None:
                self._makers.append(maker)

        def add(chunks: range) -> None:
            self._flat.sma_apply(weights, mean, sums, squares, extra=0.0, scale=scale, chunks=chunks, more=self._step)

        return make, add

    def _decay(self, number: int, mean: Array, shrinks: Sequence[float]) -> Array | None:
        """The amount that decay has taken off this matrix in U."""
        if not shrinks or shrinks[number] == 0.0:
            return None
        decay: Array = mean[self._spans[number]] * mean.dtype.type(shrinks[number])
        return decay

    def _maker(self) -> Callable[..., None]:
        try:
            return self._makers.pop()
        except IndexError:  # all are in use
            return self._flat.orthogonal(self._matrices, self._dtype)
