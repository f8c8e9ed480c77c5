"""Learners that are not kept together, to measure by what averaging costs, and what it is good for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local, chunks_of
from mpibow.sync.gain import Meter
from mpibow.sync.rule import TAIL, Rows, RuleState
from mpibow.sync.settings import Independent


@dataclass
class IndependentRule:
    """The local steps and nothing else: the centre is the replicas' mean whenever `set_mean` makes it.

    What crosses ranks, every `period` iterations, is the synchroniser's own few numbers: no rank waits for another in
    between.
    """

    settings: Independent
    flat: FlatKernels
    mean: Array  # (size,)
    uniform: bool = False
    follows: bool = False
    deferred: bool = True
    adds: bool = False
    gain: float = 1.0
    meter: Meter | None = None
    zeros: Callable[[int, str], Array] | None = None  # what it sends is small

    def __post_init__(self) -> None:
        self.chunk, self.chunks = self.flat.chunk, chunks_of(self.mean.size, self.flat.chunk)
        self._tail = self.flat.zeros(TAIL, self.mean.dtype)
        self._had, self._turn = 0, 0

    @property
    def centre(self) -> Array:
        return self.mean

    def begin(self, rows: Rows, k: int, keep: bool = False) -> None:
        """New learners start from the centre, as it was last made (a session makes it first); the others go on."""
        if not keep:
            self.flat.put(rows.weights[self._had :], self.mean)
        self._had = len(rows.weights)

    def restart(self, rows: Rows) -> None:
        self.flat.put(rows.weights, self.mean)

    def update(self, rows: Rows, local: Local, chunks: range) -> None:
        for i in range(len(rows.weights)):
            row = slice(i, i + 1)
            self.flat.sgd_update(
                rows.weights[row], rows.momenta[row], rows.gradients[i],
                local=local, scale=1.0, chunks=chunks, factors=rows.factors,
            )  # fmt: skip

    def outgoing(self) -> Array | None:
        return self._tail if (self._turn + 1) % self.settings.period == 0 else None

    def received(self, local: Local, sums: Any = None) -> None:
        pass

    def apply(self, rows: Rows, local: Local) -> tuple[()]:
        return ()

    def advance(self) -> None:
        self._turn += 1

    def settle(self, rows: Rows) -> None:
        pass

    def moved(self) -> None:
        pass

    def unsent(self) -> Array | None:
        return None

    def set_mean(self, mean: Array) -> float:
        self.flat.put(self.mean, mean)
        return 0.0  # it follows nothing that it could have drifted from

    def shared(self) -> list[Array]:
        return [self.mean]

    def state(self) -> RuleState:
        return RuleState({}, {}, {"turn": self._turn})

    def load(self, centre: Array, state: RuleState) -> None:
        self.flat.put(self.mean, centre)
        self._turn = state.numbers["turn"]
