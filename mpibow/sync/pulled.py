"""Replicas that are pulled to their mean W, or reset to it; an outer step moves W and them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local
from mpibow.sync.alone import Alone
from mpibow.sync.family import Family
from mpibow.sync.gain import Gain, GainMeter, GainNumbers
from mpibow.sync.outbox import TAIL, Outbox, Zeros
from mpibow.sync.outer import OuterMomentum
from mpibow.sync.rule import UNSENT, Add, OnChunks, Rows, RuleState, Stored, drift_of

TALK = 50  # iterations after which ranks talk, if a period is longer


class Pulled:
    """The rules pulled and reset of tests/sync/oracle.py of the repository.

    At period 1 and along the mean step, pulled learners that are all this rank's move together in one pass (`Alone`):
    W is their mean by construction. After one of them was reset W follows the sums, as it does in all other cases,
    until `set_mean`. In the midst of a period W is that of the last exchange.
    """

    alike, follows = False, True
    numbers = GainNumbers
    arrays: ClassVar[Mapping[str, Stored]] = {"outer_velocity": Stored("all", "steps"), **UNSENT}

    def __init__(
        self, settings: Family, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None
    ) -> None:
        self._settings, self._flat, self._rows, self._mean = settings, flat, rows, initial
        self.averaging, self._alone = settings.of(1), Alone(flat, rows, initial)
        self._out = Outbox(flat, initial.size, initial.dtype, zeros)
        self._tail = flat.zeros(TAIL, initial.dtype)
        self._gain, moves = Gain(self.averaging, flat), self.averaging.outer != "mean"
        self._outer = OuterMomentum(flat, initial.size, initial.dtype) if moves else None
        self._together = False  # all learners are this rank's, and one pass moves them
        self._was_reset = False  # one of them was reset since W was set to their mean
        self._turn = 0
        self._rate, self._sums = 0.0, np.zeros((1, 0))  # of the iteration whose sums are being applied

    @property
    def overlaps(self) -> bool:
        """Replicas wait for the outer step, unless one pass makes it."""
        return self._alone_now or not self._sends

    @property
    def _alone_now(self) -> bool:
        return self._together and not self._was_reset

    @property
    def _sends(self) -> bool:
        """Whether this iteration's exchange is one of sums, where it is not `_alone_now`."""
        return self.averaging.sends_at(self._turn)

    @property
    def _unsent(self) -> bool:
        """Whether there are unsent steps from before this iteration."""
        return not self._alone_now and self.averaging.unfinished(self._turn)

    @property
    def meter(self) -> GainMeter:
        return self._gain.meter

    @property
    def centre(self) -> Array:
        return self._alone.mean

    def begin(self, k: int, keep: bool = False) -> None:
        self.averaging = rule = self._settings.of(k)
        self._gain.count(k)
        one_pass = rule.replicas == "pulled" and rule.outer == "mean" and rule.period == 1
        self._together = len(self._rows.weights) == k and (rule.plain or one_pass)
        if not keep:
            self._restart()

    def end_period(self) -> int:
        rule = self.averaging
        if not self._unsent:
            return 0
        self.averaging = replace(rule, period=self._turn % rule.period)
        self._turn = self.averaging.period - 1
        return 1

    def restart(self) -> None:
        """w_i = W; the period's counter and the steps that were not sent are 0."""
        self.averaging = self._settings.of(self.averaging.k)
        self._restart()
        if self._settings.reset_momentum and self._outer is not None:
            self._outer.forget()

    def _restart(self) -> None:
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
            *self._rows.trained, out.sums, out.squares, self.centre, out.spare, local=local, alpha=alpha, extra=0.0,
            begin=not rule.unfinished(self._turn), chunks=chunks, factors=self._rows.factors,
        )  # fmt: skip

    def outgoing(self) -> Array | None:
        if self._alone_now:
            return self._out.tail
        if self._sends:
            return self._out.close()
        return self._tail if (self._turn + 1) % TALK == 0 else None

    def apply(self, local: Local, sums: Any) -> Sequence[OnChunks]:
        self._rate, self._sums = local.rate, sums
        if self._alone_now or not self._sends:
            return ()
        rule = self.averaging
        arrays = self._rows.weights, self._mean, sums, self._out.squares
        if self._outer is not None:
            passes = self._outer.works(rule, local.rate, *arrays)
        else:
            passes = (partial(_add_up, self._flat, arrays, self.meter.common, self.meter.whole),)
        return (*passes, self._level) if rule.replicas == "reset" else passes

    def _level(self, chunks: range) -> None:
        part = slice(chunks.start * self._flat.chunk, chunks.stop * self._flat.chunk)
        self._flat.put(self._rows.weights[:, part], self._mean[part])

    def advance(self) -> None:
        """The passes that read the gain of before are made, and have squared what they added up."""
        if self._alone_now:
            self.meter.follow_alone(self._gain.k, self._rate, self._alone.sums)
        elif self._sends:
            self.meter.follow(self._gain.k, self._rate, self._sums, self._out.size, self._out.squares)
            self._out.turn()
        self._turn += 1

    def settle(self) -> None:
        self._alone.settle()

    def reset(self, i: int) -> str:
        self._rows.reseed(i, self.centre)
        self._was_reset = self._together
        return "starts again from the centre"

    def set_mean(self, mean: Array, add: Add) -> float:
        """Replicas that are reset follow W, not W them."""
        if self.averaging.replicas == "reset" and not self._alone_now:
            return 0.0
        own = self._flat.host(self.centre)
        if self._unsent:  # W is that of the last exchange
            self._flat.put(self._out.spare, self._out.sums)
            add(self._out.spare)
            steps = self._flat.host(self._out.spare)
            mean = mean - steps * steps.dtype.type(1.0 / self.averaging.k)
        drift = drift_of(own, mean)
        self._flat.put(self._mean, mean)
        self._was_reset = False
        return drift

    def shared(self) -> list[Array]:
        return [self.centre] if self._outer is None else [self.centre, self._outer.velocity]

    def state(self) -> RuleState:
        shared, rate = (
            ({}, 0.0) if self._outer is None else ({"outer_velocity": self._outer.velocity}, self._outer.rate)
        )
        numbers = {"turn": self._turn, "apart": self._was_reset, "rate": rate, **self._gain.numbers()}
        return RuleState(shared, self._out.unsent() if self._unsent else {}, numbers)

    def load(self, centre: Array, state: RuleState) -> None:
        self._alone.load(centre)
        self._turn = state.numbers["turn"]
        self._was_reset = state.numbers.get("apart", False)  # older checkpoints lack it
        self._gain.load(state.numbers)
        if self._outer is not None:
            self._flat.put(self._outer.velocity, state.shared["outer_velocity"])
            self._outer.rate = state.numbers.get("rate", 0.0)
        if state.own:
            self._out.load(state.own)


def _add_up(flat: FlatKernels, arrays: tuple[Any, Any, Any, Any], extra: Any, scale: Any, chunks: range) -> None:
    flat.sma_apply(*arrays, extra=extra, scale=scale, chunks=chunks)
