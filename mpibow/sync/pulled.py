"""SMA with a gain: replicas are pulled to their own mean, and a common step at once takes that G mean steps further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local
from mpibow.sync.alone import Alone
from mpibow.sync.averaging import averaging
from mpibow.sync.gain import Gain, GainMeter, GainNumbers
from mpibow.sync.orthogonal import Common
from mpibow.sync.outbox import Outbox, Zeros
from mpibow.sync.rule import Add, OnChunks, Rows, RuleState, Stored, drift_of
from mpibow.sync.settings import Sma


class Pulled:
    """As mpibow.sync.oracle has it: pulled, delay 0.

    Along the mean step learners that are all this rank's move together in one pass (`Alone`): W is their mean by
    construction. After one of them was reset W follows the sums, as on several ranks, until `set_mean`. It always does
    where the common step is orthogonal, as `orthogonal` makes its matrices of whole sums.
    """

    alike, follows = False, True
    numbers: ClassVar[type] = GainNumbers
    arrays: ClassVar[Mapping[str, Stored]] = {}

    def __init__(
        self, settings: Sma, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None,
        orthogonal: Common | None = None,
    ) -> None:  # fmt: skip
        self._settings, self._flat, self._rows, self._orthogonal = settings, flat, rows, orthogonal
        self.averaging, self._alone, self._mean = averaging(settings, 1), Alone(flat, rows, initial), initial
        self._out, self._gain = Outbox(flat, initial.size, initial.dtype, zeros), Gain(settings.gain, flat)
        self._together = False  # all learners are this rank's, and one pass moves them
        self._was_reset = False  # one of them was reset since W was set to their mean
        self._turn = 0
        self._rate, self._sums = 0.0, np.zeros((1, 0))  # of the iteration whose sums are being applied

    @property
    def overlaps(self) -> bool:
        """Replicas wait for the common step, but where one pass makes it."""
        return self._alone_now

    @property
    def _alone_now(self) -> bool:
        return self._together and not self._was_reset

    @property
    def _spreads(self) -> bool:
        return self._orthogonal is not None and self.averaging.orthogonal

    @property
    def meter(self) -> GainMeter:
        return self._gain.meter

    @property
    def centre(self) -> Array:
        return self._alone.mean

    def begin(self, k: int, keep: bool = False) -> None:
        self.averaging = averaging(self._settings, k)
        self._gain.count(k)
        self._together = len(self._rows.weights) == k and (k == 1 or not self._spreads)
        if not keep:
            self.restart()

    def restart(self) -> None:
        """w_i = W; the period's counter is 0."""
        self._flat.put(self._rows.weights, self.centre)
        if self._settings.reset_momentum:
            self._rows.forget()
        self._turn, self._was_reset = 0, False

    def update(self, local: Local, chunks: range) -> None:
        rule, out = self.averaging, self._out
        alpha = rule.correction if rule.on(self._turn) else 0.0
        if self._alone_now:
            self._alone.update(local, alpha, self.meter.common, chunks)
            return
        self._flat.sma_update(
            *self._rows.trained, out.sums, out.squares, self.centre, out.spare,
            local=local, alpha=alpha, extra=0.0, begin=True, chunks=chunks, factors=self._rows.factors,
        )  # fmt: skip

    def outgoing(self) -> Array:
        return self._out.tail if self._alone_now else self._out.close()

    def apply(self, local: Local, sums: Any) -> Sequence[OnChunks]:
        self._rate, self._sums = local.rate, sums
        if self._alone_now:
            return ()
        rule, extra = self.averaging, self.meter.common
        arrays = self._rows.weights, self._mean, sums, self._out.squares
        if self._spreads and rule.even > 1.0:
            assert self._orthogonal is not None
            return self._orthogonal.works(*arrays, extra=extra, even=(rule.even - 1.0) / rule.k, scale=1.0 / rule.k)
        return (partial(_add_up, self._flat, arrays, extra, self.meter.whole),)

    def advance(self) -> None:
        """The passes that read the gain of before are made, and have squared what they added up."""
        if self._alone_now:
            self._gain.follow_alone(self._rate, self._alone.sums)
        else:
            self._gain.follow(self._rate, self._sums, self._out.size, self._out.squares)
            self._out.turn()
        self._turn += 1

    def settle(self) -> None:
        self._alone.settle()

    def reset(self, i: int) -> str:
        self._rows.reseed(i, self.centre)
        self._was_reset = self._together
        return "starts again from the centre"

    def set_mean(self, mean: Array, add: Add) -> float:
        drift = drift_of(self._flat.host(self.centre), mean)
        self._flat.put(self._mean, mean)
        self._was_reset = False
        return drift

    def shared(self) -> list[Array]:
        return [self.centre]

    def state(self) -> RuleState:
        return RuleState({}, {}, {"turn": self._turn, "apart": self._was_reset, **self._gain.numbers()})

    def load(self, centre: Array, state: RuleState) -> None:
        self._alone.load(centre)
        self._turn = state.numbers["turn"]
        self._was_reset = state.numbers.get("apart", False)  # older checkpoints lack it
        self._gain.load(state.numbers)


def _add_up(flat: FlatKernels, arrays: tuple[Any, Any, Any, Any], extra: Any, scale: Any, chunks: range) -> None:
    flat.sma_apply(*arrays, extra=extra, scale=scale, chunks=chunks)
