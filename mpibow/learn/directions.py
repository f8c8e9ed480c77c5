"""Muon's directions: its matrices' gradients are replaced by them before the step."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np

from mpibow.graph import Array, Layout, Span
from mpibow.kernels import FlatKernels
from mpibow.kernels.numpy.orthogonal import cost_of, matrix_of, place_of
from mpibow.ops.products import Products
from mpibow.optim import Muon, Update


@dataclass(frozen=True)
class Matrices:
    """The weights that take Muon's step, the costliest first, and why the other ones of two axes or more do not.

    `passes` are the operations of a batch's forward and backward passes.
    """

    spans: Sequence[Span] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    passes: float = 1.0


def matrices_of(update: Muon, layout: Layout, products: Products) -> Matrices:
    """The hidden layers, as in Jordan's Muon: neither the first weight, which reads the data, nor the last, which gives
    the logits, nor embeddings; nor matrices above `largest_share`."""
    spans = {span.name: span for span in layout.spans}
    wide = [name for name in products.wide if spans[name].weight.trained]
    costs = {name: cost_of(spans[name], update.ns_steps) for name in wide}
    most = update.largest_share * products.operations
    others = {}
    for place, name in enumerate(wide):
        if place == 0:
            others[name] = "the first"
        elif place == len(wide) - 1:
            others[name] = "the last"
        elif name not in products.factors:
            others[name] = "an embedding"
        elif costs[name] > most:
            others[name] = f"{_gflop(costs[name])}, {costs[name] / products.operations:.3g} x the passes"
    chosen = sorted((name for name in wide if name not in others), key=lambda name: -costs[name])
    return Matrices([spans[name] for name in chosen], others, products.operations)


def described(matrices: Matrices, update: Update) -> str:
    """A text of the weights that take Muon's step, its cost, and the other weights; '' for another optimiser."""
    if not isinstance(update, Muon):
        return ""
    costs = [cost_of(span, update.ns_steps) for span in matrices.spans]
    passes = matrices.passes
    text = f"muon: {len(costs)} of {len(costs) + len(matrices.others)} matrices get orthogonal steps"
    if costs:
        text += (
            f", {_gflop(sum(costs))} an update and learner, {sum(costs) / passes:.3g} x a batch's forward and "
            f"backward passes ({matrices.spans[0].name} {costs[0] / passes:.3g} x)"
        )
    others = "".join(f", {name} ({why})" for name, why in matrices.others.items())
    return f"{text}; {update.fallback.name} updates vectors{others}; update.largest_share is {update.largest_share:g}"


def _gflop(operations: float) -> str:
    return f"{operations / 1e9:.3g} GFLOP"


class Directions:
    """g <- g + l1 sign(w), v <- momentum v + g and, in the place of g, the scaled direction, of every row's matrices.

    Threads share the matrices, the costliest first; each takes the next until there are none. The bits do not depend on
    which thread takes a matrix.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        update: Muon,
        flat: FlatKernels,
        dtype: np.dtype[np.floating],
        l1: Mapping[str, float] = MappingProxyType({}),
        start: int = 0,
    ):
        """Directions of the matrices at `spans`. `l1` has each weight's factor by name, 0 where it is missing; momenta
        begin at element `start`."""
        self._start = start
        self._parts = [span.part for span in spans]
        self._l1 = [dtype.type(l1.get(span.name, 0.0)) for span in spans]
        self._scales = [update.scale_of(*matrix_of(span.shape)) for span in spans]
        self._make = partial(flat.orthogonal, [place_of(span) for span in spans], dtype, update.ns_steps)
        self._makers = deque[Callable[..., None]]()  # to be used again: the last one is in a cache

    def works(self, weights: Array, momenta: Array, gradients: Array, update: Muon) -> Callable[[range], None]:
        """A function that threads call with any chunks, once for each of `weights`, `momenta`, `gradients` (k, size).

        If there are more rows of weights, the first k are used.
        """
        left = deque((row, number) for number in range(len(self._parts)) for row in range(len(gradients)))
        momentum = gradients.dtype.type(update.momentum)

        def work(chunks: range) -> None:
            with self._maker() as make, suppress(IndexError):  # there are no more
                while True:
                    row, number = left.popleft()
                    part = self._parts[number]
                    fixed, scale = self._scales[number]
                    v = momenta[row, part.start - self._start : part.stop - self._start]
                    g = gradients[row, part]
                    if self._l1[number]:
                        np.add(g, self._l1[number] * np.sign(weights[row, part]), out=g)
                    np.multiply(v, momentum, out=v)
                    np.add(v, g, out=v)
                    if update.nesterov:
                        np.add(g, momentum * v, out=g)
                    else:
                        np.copyto(g, v)
                    make(gradients[row], gradients[row], number, scale=scale, fixed=fixed)

        return work

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
