"""Synchronous SGD, of any optimiser: ranks sum gradients, and one optimiser makes all replicas' step of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpibow.graph import Array
from mpibow.kernels import WHOLE, FlatKernels, Local

from .outbox import Message, Outbox
from .rows import Rows
from .rule import Averaging


class SummedGradients:
    """The optimiser's step of the gradients' mean over all learners, which all replicas take alike.

    Where learners' batches count differently, gradients come multiplied by their shares, and the sum of all shares is
    sent with them. Where this rank is the only one, `update` makes the step too.
    """

    def __init__(self, flat: FlatKernels, rows: Rows, out: Outbox):
        self._flat = flat
        self._rows = rows
        self._out = out
        self._stepped = False

    def update(self, point: Averaging, local: Local) -> Callable[..., None]:
        """The sum of this rank's gradients; where it is the only rank, the step of it, too."""
        step = self._rows.trained
        total = self._out.sums
        self._stepped = len(step.gradients) == point.k and local.directs is None
        if self._stepped:
            scale = self._scale(point, self._shares())
            local = _with_gain(point, local).fixed()
            work = partial(self._flat.sgd_update, step, total, local=local, scale=scale)
        else:
            work = partial(self._flat.gradient_sum, step.gradients, total, factors=step.factors)
        return lambda chunks, **more: work(chunks=chunks, **more)

    def outgoing(self) -> Message:
        if self._stepped:
            return self._out.next.beside
        if self._rows.shares is not None:
            self._out.next.square[0] = self._shares()
        return self._out.next

    def passes(self, point: Averaging, local: Local, sums: Array) -> Sequence[Callable[..., None]]:
        if self._stepped:
            return ()
        size = self._out.sums.size
        local = _with_gain(point, local).fixed()
        mean = self._out.spare
        scale = self._scale(point, 0.0 if self._rows.shares is None else float(sums[:, size].sum(dtype=np.float64)))
        sums = sums[:, :size]
        if local.directs is None:
            return (partial(self._take, local, sums, scale, total=mean if len(sums) > 1 else None),)
        directed = local.directs(tuple(state[:1] for state in self._rows.trained.states), mean[np.newaxis])
        return partial(self._average, sums, scale), directed, partial(self._take, local, mean[np.newaxis], 1.0)

    def _shares(self) -> float:
        shares = self._rows.shares
        return 0.0 if shares is None else float(self._out.sums.dtype.type(shares.sum()))

    def _scale(self, point: Averaging, shares: float) -> float:
        """The factor that makes the sum of gradients their mean."""
        if self._rows.shares is None:
            return 1.0 / point.k
        return 1.0 / shares if shares else 0.0  # nothing counts

    def _average(self, sums: Array, scale: float, chunks: range) -> None:
        """The mean gradient, which becomes a direction where it lies."""
        mean = self._out.spare
        self._flat.gradient_sum(sums, mean, chunks=chunks)
        part = slice(chunks.start * self._flat.chunk, chunks.stop * self._flat.chunk)
        np.multiply(mean[part], mean.dtype.type(scale), out=mean[part])

    def _take(
        self, local: Local, gradients: Array, scale: float, chunks: range, total: Array | None = None, **more: Any
    ) -> None:
        """The step of `scale` times the sum of gradients (n, size); `total` (size,) is scratch."""
        step = self._rows.trained._replace(gradients=gradients, factors=WHOLE)
        self._flat.sgd_update(step, total, local=local, scale=scale, chunks=chunks, **more)


def _with_gain(point: Averaging, local: Local) -> Local:
    """At the gain of k learners: Goyal et al., arXiv:1706.02677."""
    gain = point.used(1.0)
    return local if gain == 1.0 else local.times(gain)
