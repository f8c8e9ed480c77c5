"""SMA with a gain whose common step comes an iteration late, and the exchange is hidden behind compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local
from mpibow.sync.alone import Alone
from mpibow.sync.averaging import averaging
from mpibow.sync.gain import Gain, GainMeter, GainNumbers
from mpibow.sync.outbox import Outbox, Zeros
from mpibow.sync.rule import Add, OnChunks, Rows, RuleState, Stored, drift_of
from mpibow.sync.settings import Sma


class Delayed:
    """As mpibow.sync.oracle has it: pulled, delay 1. One learner is plain SGD."""

    overlaps, alike, follows = True, False, True
    numbers: ClassVar[type] = GainNumbers
    arrays: ClassVar[Mapping[str, Stored]] = {"common": Stored("all", "sent")}

    def __init__(
        self, settings: Sma, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None
    ) -> None:
        self._settings, self._flat, self._rows = settings, flat, rows
        self.averaging, self._alone, self._mean = averaging(settings, 1), Alone(flat, rows, initial), initial
        self._out, self._gain = Outbox(flat, initial.size, initial.dtype, zeros), Gain(settings.gain, flat)
        self._turn, self._live = 0, False  # _live: there are sums of the iteration before, which lie in `spare`

    @property
    def meter(self) -> GainMeter:
        return self._gain.meter

    @property
    def centre(self) -> Array:
        return self._alone.mean

    def begin(self, k: int, keep: bool = False) -> None:
        self.averaging = averaging(self._settings, k)
        self._gain.count(k)
        if not keep:
            self.restart()

    def restart(self) -> None:
        """w_i = W; the period's counter and the pending common step are 0."""
        self._flat.put(self._rows.weights, self.centre)
        if self._settings.reset_momentum:
            self._rows.forget()
        self._turn, self._live = 0, False

    def update(self, local: Local, chunks: range) -> None:
        rule, out, late = self.averaging, self._out, self.meter.common if self._live else 0.0
        if rule.k == 1:
            self._alone.update(local, 0.0, 0.0, chunks)
            return
        self._flat.sma_update(
            *self._rows.trained, out.sums, out.squares, self.centre, out.spare,
            local=local, alpha=rule.alpha if rule.on(self._turn) else 0.0, extra=late, begin=True, chunks=chunks,
            factors=self._rows.factors,
        )  # fmt: skip

    def outgoing(self) -> Array:
        return self._out.tail if self.averaging.k == 1 else self._out.close()

    def apply(self, local: Local, sums: Any) -> Sequence[OnChunks]:
        if self.averaging.k == 1:
            return ()
        out, common = self._out, self.meter.common if self._live else None
        self._gain.follow(local.rate, sums, out.size)
        return (partial(self._move, out.spare, common, sums[0][: out.size]),)

    def _move(self, before: Array, common: Any, total: Array, chunks: range) -> None:
        """W goes along the common step of the iteration before, and along this one's mean step."""
        if common is not None:
            self._flat.add_scaled(self._mean, before, scale=common, chunks=chunks)
        self._flat.add_scaled(self._mean, total, scale=1.0 / self.averaging.k, chunks=chunks)

    def advance(self) -> None:
        if self.averaging.k > 1:
            self._out.turn()
            self._live = True
        self._turn += 1

    def settle(self) -> None:
        self._alone.settle()

    def reset(self, i: int) -> str:
        self._rows.reseed(i, self.centre)
        return "starts again from the centre"

    def set_mean(self, mean: Array, add: Add) -> float:
        drift = drift_of(self._flat.host(self.centre), mean)
        self._flat.put(self._mean, mean)
        return drift

    def shared(self) -> list[Array]:
        return [self.centre, self._out.sent] if self._live else [self.centre]

    def state(self) -> RuleState:
        common = {"common": self._out.sent} if self._live else {}
        return RuleState(common, {}, {"turn": self._turn, **self._gain.numbers()})

    def load(self, centre: Array, state: RuleState) -> None:
        self._alone.load(centre)
        self._live, self._turn = "common" in state.shared, state.numbers["turn"]
        if self._live:
            self._flat.put(self._out.sent, state.shared["common"])
        self._gain.load(state.numbers)
