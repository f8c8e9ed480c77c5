"""Lagging replicas: pulled to a centre that lags behind their mean, the exchange hidden behind compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from mpibow.bounds import Natural
from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local
from mpibow.sync.alone import Alone
from mpibow.sync.family import Family
from mpibow.sync.gain import Averages
from mpibow.sync.outbox import Outbox, Zeros
from mpibow.sync.rule import UNSENT, Add, OnChunks, Rows, RuleState, Stored, drift_of


@dataclass(frozen=True)
class LaggingNumbers:
    turn: Natural
    gain: float = 1.0  # older checkpoints have these, which nothing reads
    averages: Averages = field(default_factory=Averages)
    apart: bool = False


class Lagging:
    """Crossbow's rule (PVLDB 12(11) 2019, algorithm 1), with mu = 0 synchronous EA-SGD.

    Its formulas are `lagging` in tests/sync/oracle.py of the repository.
    With a period tau a rank adds its steps up and sends them once in tau iterations. One learner is plain SGD, z = w.
    """

    overlaps, alike, follows, meter = True, False, True, None
    numbers = LaggingNumbers
    arrays: ClassVar[Mapping[str, Stored]] = {
        "mean": Stored("all", "weights"),
        "previous": Stored("all", "weights"),
        **UNSENT,
    }

    def __init__(
        self, settings: Family, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None
    ) -> None:
        self._settings, self._flat, self._rows = settings, flat, rows
        self.averaging = settings.of(1)
        self._alone, self._mean = Alone(flat, rows, initial), initial
        self._z, self._previous = (flat.zeros(initial.size, initial.dtype) for _ in range(2))
        for array in (self._z, self._previous):
            flat.put(array, initial)
        self._out = Outbox(flat, initial.size, initial.dtype, zeros)
        self._turn, self._fresh = 0, True  # _fresh: nothing is pending, so the next update overwrites the sums

    @property
    def centre(self) -> Array:
        return self._alone.mean if self.averaging.k == 1 else self._z

    def begin(self, k: int, keep: bool = False) -> None:
        z, self.averaging = self.centre, self._settings.of(k)
        if not keep:
            self._flat.put(self._mean, z)
            self._flat.put(self._z, z)
            self.restart()

    def end_period(self) -> int:
        """The exchange of the pending steps, and the correction that follows it."""
        if not self.averaging.unfinished(self._turn):
            return 0
        self.averaging, self._turn = replace(self.averaging, period=2), int(self._fresh)
        return 2 - self._turn

    def restart(self) -> None:
        """w_i = W = z_prev = z; the period's counter and the pending steps are 0."""
        self.averaging = self._settings.of(self.averaging.k)
        if self.averaging.k > 1:
            self._flat.put(self._mean, self._z)
            self._flat.put(self._previous, self._z)
        self._flat.put(self._rows.weights, self._alone.mean)
        if self._settings.reset_momentum:
            self._rows.forget()
        self._turn, self._fresh = 0, True

    def update(self, local: Local, chunks: range) -> None:
        rule, out = self.averaging, self._out
        if rule.k == 1:
            self._alone.update(local, 0.0, 0.0, chunks)
            return
        self._flat.sma_update(
            *self._rows.trained, out.sums, out.squares, self._z, out.spare,
            local=local, alpha=rule.alpha if rule.on(self._turn) else 0.0, extra=0.0, begin=self._fresh, chunks=chunks,
            factors=self._rows.factors,
        )  # fmt: skip

    def outgoing(self) -> Array | None:
        if self.averaging.k == 1:
            return self._out.tail
        self._fresh = self.averaging.sends_at(self._turn)
        return self._out.close() if self._fresh else None

    def apply(self, local: Local, sums: Any) -> Sequence[OnChunks]:
        rule = self.averaging
        if rule.k == 1:
            return ()
        return (
            partial(
                self._centre_update, None if sums is None else sums[0][: self._out.size],
                rule.k * rule.alpha if rule.on(self._turn) else 0.0,
            ),
        )  # fmt: skip

    def _centre_update(self, total: Array | None, pull: float, chunks: range) -> None:
        rule = self.averaging
        self._flat.centre_update(
            self._mean, self._z, self._previous, total,
            pull=pull, alpha=rule.alpha, momentum=rule.mu, scale=1.0 / rule.k, chunks=chunks,
        )  # fmt: skip

    def advance(self) -> None:
        self._turn += 1

    def settle(self) -> None:
        self._alone.settle()

    def reset(self, i: int) -> str:
        self._rows.reseed(i, self.centre)
        return "starts again from the centre"

    def set_mean(self, mean: Array, add: Add) -> float:
        own = self._flat.host(self._alone.mean)
        if not self._fresh:
            add(self._out.sums)
            steps = self._flat.host(self._out.sums)
            own = own + steps * steps.dtype.type(1.0 / self.averaging.k)
            self._fresh = True
        drift = drift_of(own, mean)
        self._flat.put(self._mean, mean)
        return drift

    def shared(self) -> list[Array]:
        return [self._alone.mean] if self.averaging.k == 1 else [self._mean, self._z, self._previous]

    def state(self) -> RuleState:
        common = {} if self.averaging.k == 1 else {"mean": self._mean, "previous": self._previous}
        own = {} if self._fresh else self._out.unsent()
        return RuleState(common, own, {"turn": self._turn})

    def load(self, centre: Array, state: RuleState) -> None:
        self._flat.put(self._z, centre)
        self._alone.load(state.shared.get("mean", centre))
        self._flat.put(self._previous, state.shared.get("previous", centre))
        self._fresh, self._turn = "pending" not in state.own, state.numbers["turn"]
        if not self._fresh:
            self._out.load(state.own)
