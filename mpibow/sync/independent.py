"""Learners that are not kept together, to measure the cost and the benefit of averaging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from mpibow.bounds import Count, Natural
from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local
from mpibow.sync.outbox import TAIL, Zeros
from mpibow.sync.rule import Add, OnChunks, Rows, RuleState, Stored
from mpibow.sync.settings import RuleSettings


@dataclass(frozen=True)
class Independent(RuleSettings):
    """Learners that are not kept together, to measure the cost of averaging. The centre is their mean."""

    name: Literal["independent"] = field(default="independent", kw_only=True)
    period: Annotated[Count, "iterations between two exchanges of the ranks"] = 50


@dataclass(frozen=True)
class IndependentNumbers:
    turn: Natural


class IndependentLearners:
    """The local steps and nothing else: the centre is the replicas' mean whenever `set_mean` makes it.

    Every `period` iterations ranks exchange only the synchroniser's own few numbers: no rank waits for another in
    between.
    """

    overlaps, alike, follows, meter = True, False, False, None
    numbers = IndependentNumbers
    arrays: ClassVar[Mapping[str, Stored]] = {}

    def __init__(
        self, settings: Independent, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None
    ) -> None:
        """It sends little: `zeros` are not needed."""
        self._settings, self._flat, self._rows, self.centre = settings, flat, rows, initial
        self._tail = flat.zeros(TAIL, initial.dtype)
        self._had, self._turn = 0, 0

    def begin(self, k: int, keep: bool = False) -> None:
        """New learners start from the centre, as it was last made (a session makes it first); the others go on."""
        weights = self._rows.weights
        if not keep:
            self._flat.put(weights[self._had :], self.centre)
        self._had = len(weights)

    def end_period(self) -> int:
        return 0

    def restart(self) -> None:
        self._flat.put(self._rows.weights, self.centre)

    def update(self, local: Local, chunks: range) -> None:
        weights, states, gradients = self._rows.trained
        for i in range(len(weights)):
            row = slice(i, i + 1)
            self._flat.sgd_update(
                weights[row], tuple(state[row] for state in states), gradients[row],
                local=local.of(i), scale=1.0, chunks=chunks, factors=self._rows.factors,
            )  # fmt: skip

    def outgoing(self) -> Array | None:
        return self._tail if (self._turn + 1) % self._settings.period == 0 else None

    def apply(self, local: Local, sums: Any) -> Sequence[OnChunks]:
        return ()

    def advance(self) -> None:
        self._turn += 1

    def settle(self) -> None:
        pass

    def reset(self, i: int) -> str:
        self._rows.reseed(i, self.centre)
        return "starts again from the centre"

    def set_mean(self, mean: Array, add: Add) -> float:
        self._flat.put(self.centre, mean)
        return 0.0  # it follows nothing that it could have drifted from

    def shared(self) -> list[Array]:
        return [self.centre]

    def state(self) -> RuleState:
        return RuleState({}, {}, {"turn": self._turn})

    def load(self, centre: Array, state: RuleState) -> None:
        self._flat.put(self.centre, centre)
        self._turn = state.numbers["turn"]
