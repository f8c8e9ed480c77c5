"""Muon's directions: what its matrices' gradients become before the step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout, Span
from mpibow.kernels.matrices import cost_of, matrix_of, place_of
from mpibow.kernels.passes import FlatKernels
from mpibow.optim.muon import Muon


def matrices_of(layout: Layout, update: Muon) -> list[Span]:
    """Those that take Muon's step, the costliest first: hidden layers, as Jordan has it.

    Not the first weight of two axes or more, which sees the data, nor the last, which gives the logits, nor those whose
    smaller side is above `update.largest`.
    """
    order = {span.name: i for i, span in enumerate(sorted(layout.spans, key=lambda span: span.offset))}
    wide = sorted((span for span in layout.spans if len(span.shape) > 1), key=lambda span: order[span.name])[1:-1]
    found = [span for span in wide if min(matrix_of(span.shape)) <= update.largest]
    return sorted(found, key=lambda span: -cost_of(span, update.ns_steps))


class Directions:
    """g <- g + l1 sign(w), v <- momentum v + g and, in the place of g, the scaled direction, of every row's matrices.

    Threads share them, each taking the next until there are none, the costliest first; no bits depend on who takes one.
    """

    def __init__(
        self, layout: Layout, update: Muon, flat: FlatKernels, dtype: Any,
        l1: Mapping[str, float] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """`l1` is every weight's, by name; 0 where there is none."""
        spans = matrices_of(layout, update)
        self._parts = [slice(span.offset, span.offset + span.size) for span in spans]
        self._l1 = [dtype.type(l1.get(span.name, 0.0)) for span in spans]
        self._places = [place_of(span) for span in spans]
        self._scales = [update.scale_of(*matrix_of(span.shape)) for span in spans]
        self._make = partial(flat.orthogonal, self._places, dtype, update.ns_steps)
        self._makers = deque[Callable[..., None]]()  # to be used again: the last one is in a cache

    def works(self, weights: Array, momenta: Array, gradients: Array, update: Muon) -> Callable[[range], None]:
        """What threads call with any chunks, once for each of `weights`, `momenta` and `gradients` (k, size).

        There may be more rows of weights, and those in front are meant.
        """
        left = deque((row, number) for number in range(len(self._parts)) for row in range(len(gradients)))
        momentum, nesterov = gradients.dtype.type(update.momentum), update.nesterov

        def work(chunks: range) -> None:
            with self._maker() as make, suppress(IndexError):  # there are no more
                while True:
                    row, number = left.popleft()
                    self._direct(make, weights[row], momenta[row], gradients[row], number, momentum, nesterov)

        return work

    def _direct(
        self, make: Callable[..., None], weights: Array, momenta: Array, gradient: Array, number: int, momentum: Any,
        nesterov: bool,
    ) -> None:  # fmt: skip
        part, (fixed, even) = self._parts[number], self._scales[number]
        v, g = momenta[part], gradient[part]
        if self._l1[number]:
            np.add(g, self._l1[number] * np.sign(weights[part]), out=g)
        np.multiply(v, momentum, out=v)
        np.add(v, g, out=v)
        if nesterov:
            np.add(g, momentum * v, out=g)
        else:
            np.copyto(g, v)
        make(gradient, gradient, number, gain=np.inf, even=even, fixed=fixed)

    @contextmanager
    def _maker(self) -> Iterator[Callable[..., None]]:
        try:
            make = self._makers.pop()
        except IndexError:  # all are in use
            make = self._make()
        try:
            yield make
        finally:
            self._makers.append(make)


def described(layout: Layout, update: Muon) -> str:
    """Which weights take Muon's step, at what cost, and which matrices do not."""
    spans, wide = matrices_of(layout, update), [span for span in layout.spans if len(span.shape) > 1]
    others = [span.name for span in wide if span not in spans]
    cost = sum(cost_of(span, update.ns_steps) for span in spans) / 1e9
    return (
        f"muon: {len(spans)} of {len(wide)} matrices take orthogonal steps, {cost:.3g} GFLOP an update and learner; "
        f"{update.fallback.name} updates vectors, {', '.join(others)}"
    )
