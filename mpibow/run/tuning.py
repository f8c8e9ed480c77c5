"""One rank's side of the auto-tuner: its meter, the history that all ranks hold alike, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import psutil

from mpibow.data.timeline import Counts
from mpibow.graph.plan import Plan
from mpibow.tune import Decision, History, Meter, Reading, Tuner, Window, decide, enough


class Tuning(Protocol):
    """How many learners there are to be. All ranks call `conclude` and `without` alike, with the same arguments."""

    @property
    def asks(self) -> bool:
        """Whether this rank is sure of its times, so that it is worth asking the others for theirs."""
        ...

    @property
    def decision(self) -> Decision | None:
        """What was decided last; None where learners are given."""
        ...

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        """Enters an iteration's seconds, this rank's own work and all of it, which `counts` learners took."""
        ...

    def reading(self) -> Reading | None: ...

    def conclude(self, readings: Sequence[Reading | None]) -> Decision | None:
        """What follows from all ranks' readings; None while the window goes on."""
        ...

    def without(self, rank: int, k: int) -> Decision:
        """What follows where `rank` has no memory for k learners."""
        ...

    def state(self) -> dict[str, Any] | None:
        """For a checkpoint's header."""
        ...


class Given:
    """Learners as the settings say, or a recorded timeline."""

    asks, decision = False, None

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        pass

    def reading(self) -> None:
        return None

    def conclude(self, readings: Sequence[Reading | None]) -> None:
        return None

    def without(self, rank: int, k: int) -> Decision:
        raise AssertionError("nothing was decided")

    def state(self) -> None:
        return None


class Measured:
    """Learners as measured times say: `decide` after every window."""

    def __init__(self, history: History, tuner: Tuner) -> None:
        self._history, self._tuner = history, tuner
        self.asks = False
        self._decide()

    @classmethod
    def resumed(cls, state: Mapping[str, Any], room: Sequence[int], tuner: Tuner) -> Measured:
        """Goes on from `state`; `room` is this machine's."""
        history = History.of(state)
        return cls(History(tuple(room), history.batch, history.windows, history.looks, history.why), tuner)

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        if counts == self.decision.counts:  # a change takes a while to come
            self.asks = self._meter.add(own, whole) or self.asks

    def reading(self) -> Reading | None:
        return self._meter.reading()

    def conclude(self, readings: Sequence[Reading | None]) -> Decision | None:
        self.asks = False
        if not enough(readings, self.decision.span):
            return None
        window = Window.of(self.decision, [reading for reading in readings if reading is not None])
        self._history = self._history.add(window, self._tuner)
        return self._decide()

    def without(self, rank: int, k: int) -> Decision:
        self._history = self._history.out_of_memory(rank, k)
        return self._decide()

    def state(self) -> dict[str, Any]:
        return self._history.plain()

    def _decide(self) -> Decision:
        self.decision = decide(self._history, self._tuner)
        self._meter = Meter(self.decision.span)
        return self.decision


def learner_bytes(training: Plan, evaluation: Plan | None = None) -> int:
    """Memory that one more learner takes: its replica, and its thread's part of training and of evaluations."""
    replica = 3 * training.layout.size * np.dtype(training.dtype).itemsize
    return training.arena_bytes + replica + (evaluation.arena_bytes if evaluation else 0)


def free_memory(ranks: int) -> int:
    """A rank's share of the node's free bytes, of `ranks` on it."""
    return int(psutil.virtual_memory().available) // ranks


def room_for(free: int, learner: int, most: int) -> int:
    """Learners that there is memory for, `learner` bytes each of `free` ones: at least 1, at most `most`.

    A fifth stays free: what a process takes beside its learners is not known before.
    """
    return min(max(1, int(0.8 * free / learner)), most)
