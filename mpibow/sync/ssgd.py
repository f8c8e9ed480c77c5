"""Synchronous SGD, of any optimiser: ranks sum gradients, and one optimiser makes all replicas' step of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout
from mpibow.kernels.passes import FlatKernels, Local
from mpibow.sync.family import Family
from mpibow.sync.outbox import Outbox, Zeros
from mpibow.sync.rule import Add, OnChunks, Rows, RuleState, Stored


@dataclass(frozen=True)
class SsgdNumbers:
    """None: every iteration is alike."""


class SynchronousSgd:
    """Gradients averaged over all learners, one step that all replicas take alike.

    Where learners' batches count differently, gradients come multiplied by their shares, and the sum of all shares is
    sent with them, as the tail's first element.
    """

    overlaps, alike, follows, meter = False, True, True, None
    numbers: ClassVar[type] = SsgdNumbers
    arrays: ClassVar[Mapping[str, Stored]] = {}

    def __init__(
        self, settings: Family, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None,
        layout: Layout | None = None,
    ) -> None:  # fmt: skip
        self._settings, self._flat, self._rows, self._k = settings, flat, rows, 1
        self.centre, self._out = initial, Outbox(flat, initial.size, initial.dtype, zeros)

    def begin(self, k: int, keep: bool = False) -> None:
        """k learners over all ranks from here on; new rows take what the first one has."""
        self._k = k
        if not keep:
            self.restart()

    def restart(self) -> None:
        self._flat.put(self._rows.weights, self.centre)
        self._rows.level()

    def update(self, local: Local, chunks: range) -> None:
        _, _, gradients = self._rows.trained
        self._flat.gradient_sum(gradients, self._out.sums, chunks=chunks, factors=self._rows.factors)

    def outgoing(self) -> Array:
        if (shares := self._rows.shares) is not None:
            self._out.tail[0] = shares.sum()
        return self._out.whole

    def _scale(self, sums: Any) -> float:
        """The factor that makes the sum of gradients their mean."""
        if self._rows.shares is None:
            return 1.0 / self._k
        total = float(sums[:, self._out.size].sum(dtype=np.float64))
        return 1.0 / total if total else 0.0  # nothing counts

    def apply(self, local: Local, sums: Any) -> Sequence[OnChunks]:
        gain = self._settings.of(self._k).used(1.0)
        if gain != 1.0:  # that of k learners: Goyal et al., arXiv:1706.02677
            local = local.times(gain)
        scale, sums = self._scale(sums), sums[:, : self._out.size]
        if local.directs is None:
            return (partial(self._step, local, sums, scale),)
        _, states, _ = self._rows.trained
        mean = self._out.spare
        directed = local.directs(tuple(state[:1] for state in states), mean[np.newaxis])
        return partial(self._average, sums, scale), directed, partial(self._take, local, mean, 1.0)

    def _average(self, sums: Any, scale: float, chunks: range) -> None:
        """The mean gradient, which becomes a direction where it lies."""
        mean = self._out.spare
        self._flat.gradient_sum(sums, mean, chunks=chunks)
        part = slice(chunks.start * self._flat.chunk, chunks.stop * self._flat.chunk)
        np.multiply(mean[part], mean.dtype.type(scale), out=mean[part])

    def _step(self, local: Local, sums: Any, scale: float, chunks: range) -> None:
        total = sums[0]
        if len(sums) > 1:  # other ranks read their rows
            total = self._out.spare
            self._flat.gradient_sum(sums, total, chunks=chunks)
        self._take(local, total, scale, chunks)

    def _take(self, local: Local, total: Any, scale: float, chunks: range) -> None:
        """The step of `scale` times the sum of gradients."""
        weights, states, _ = self._rows.trained
        self._flat.sgd_update(weights, states, total, local=local, scale=scale, chunks=chunks)
        part = slice(chunks.start * self._flat.chunk, chunks.stop * self._flat.chunk)
        self._flat.put(self.centre[part], weights[0, part])

    def advance(self) -> None:
        self._out.turn()

    def settle(self) -> None:
        pass

    def reset(self, i: int) -> str:
        """Its weights, and what its local step keeps, are those of all replicas."""
        self._rows.leave_out(i)
        return "is left out"

    def set_mean(self, mean: Array, add: Add) -> float:
        return 0.0  # the replicas are the mean, bit for bit

    def shared(self) -> list[Array]:
        return [self.centre]

    def state(self) -> RuleState:
        return RuleState({}, {}, {})

    def load(self, centre: Array, state: RuleState) -> None:
        self._flat.put(self.centre, centre)
