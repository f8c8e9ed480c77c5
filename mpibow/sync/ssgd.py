"""Synchronous SGD, of any optimiser: ranks sum gradients, and one optimiser makes all replicas' step of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.passes import WHOLE, FlatKernels, Local
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
    numbers = SsgdNumbers
    arrays: ClassVar[Mapping[str, Stored]] = {}

    def __init__(
        self, settings: Family, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None
    ) -> None:
        self._settings, self._flat, self._rows, self._k = settings, flat, rows, 1
        self._out, self._stepped = Outbox(flat, initial.size, initial.dtype, zeros), False
        self._initial: Array | None = initial

    @property
    def centre(self) -> Array:
        """The first replica, or the centre to begin with."""
        return cast(Array, self._rows.weights[0]) if self._initial is None else self._initial

    def begin(self, k: int, keep: bool = False) -> None:
        """k learners over all ranks from here on; new rows take what the first one has."""
        self._k = k
        initial, self._initial = self._initial, None
        if keep:
            return
        if initial is not None:
            self._flat.put(self._rows.weights[0], initial)
        self.restart()

    def end_period(self) -> int:
        return 0

    def restart(self) -> None:
        self._flat.put(self._rows.weights[1:], self.centre)
        self._rows.level()

    def update(self, local: Local, chunks: range) -> None:
        """The sum of this rank's gradients; where it is the only rank, the step of it, too."""
        _, _, gradients = self._rows.trained
        self._stepped = len(gradients) == self._k and local.directs is None
        if self._stepped:
            scale = self._scale(self._shares())
            self._take(self._with_gain(local), gradients, scale, chunks, self._out.sums, self._rows.factors)
        else:
            self._flat.gradient_sum(gradients, self._out.sums, chunks=chunks, factors=self._rows.factors)

    def _shares(self) -> float:
        shares = self._rows.shares
        return 0.0 if shares is None else float(self._out.tail.dtype.type(shares.sum()))

    def outgoing(self) -> Array:
        if self._stepped:
            return self._out.tail
        if self._rows.shares is not None:
            self._out.tail[0] = self._shares()
        return self._out.whole

    def _scale(self, shares: float) -> float:
        """The factor that makes the sum of gradients their mean."""
        if self._rows.shares is None:
            return 1.0 / self._k
        return 1.0 / shares if shares else 0.0  # nothing counts

    def _with_gain(self, local: Local) -> Local:
        gain = self._settings.of(self._k).used(1.0)  # that of k learners: Goyal et al., arXiv:1706.02677
        return local if gain == 1.0 else local.times(gain)

    def apply(self, local: Local, sums: Any) -> Sequence[OnChunks]:
        if self._stepped:
            return ()
        local, mean = self._with_gain(local), self._out.spare
        scale = self._scale(0.0 if self._rows.shares is None else float(sums[:, self._out.size].sum(dtype=np.float64)))
        sums = sums[:, : self._out.size]
        if local.directs is None:
            return (partial(self._take, local, sums, scale, total=mean if len(sums) > 1 else None),)
        _, states, _ = self._rows.trained
        directed = local.directs(tuple(state[:1] for state in states), mean[np.newaxis])
        return partial(self._average, sums, scale), directed, partial(self._take, local, mean[np.newaxis], 1.0)

    def _average(self, sums: Any, scale: float, chunks: range) -> None:
        """The mean gradient, which becomes a direction where it lies."""
        mean = self._out.spare
        self._flat.gradient_sum(sums, mean, chunks=chunks)
        part = slice(chunks.start * self._flat.chunk, chunks.stop * self._flat.chunk)
        np.multiply(mean[part], mean.dtype.type(scale), out=mean[part])

    def _take(
        self, local: Local, gradients: Any, scale: float, chunks: range, total: Any = None, factors: Array = WHOLE
    ) -> None:
        """The step of `scale` times the sum of gradients (n, size); `total` (size,) is scratch."""
        weights, states, _ = self._rows.trained
        self._flat.sgd_update(
            weights, states, gradients, total, local=local, scale=scale, chunks=chunks, factors=factors
        )  # fmt: skip

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
