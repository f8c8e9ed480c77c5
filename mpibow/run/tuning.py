"""One rank's side of the auto-tuner: its meter, the history that all ranks share, and the decisions from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mpibow.run.compare import Trial, compare
from mpibow.tune import Cap, Counts, Decision, History, Meter, Reading, Tuner, Window, as_sum, decide, enough


class Tuning(Protocol):
    """Decides on the number of learners. All ranks call `conclude` and `without` alike, with the same arguments."""

    @property
    def asks(self) -> bool:
        """Whether this rank's times are certain enough to ask the other ranks for theirs."""
        ...

    @property
    def decision(self) -> Decision | None:
        """The last decision; None where learners are given."""
        ...

    @property
    def compares(self) -> bool:
        """Whether two executions take turns, now or when learners are settled."""
        ...

    @property
    def comparing(self) -> bool:
        """Whether two executions take turns now."""
        ...

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        """Enters the seconds of an iteration with `counts` learners: of this rank's own work, and of the whole."""
        ...

    def reading(self) -> Reading | None: ...

    def conclude(self, readings: Sequence[Reading | None]) -> Decision | None:
        """The decision from all ranks' readings; None while the window goes on."""
        ...

    def without(self, rank: int, k: int) -> Decision:
        """The decision where `rank` has no memory for k learners."""
        ...

    def stay(self, counts: Counts, why: str) -> Decision:
        """The decision to stay with the present learners, `counts`, where no others are possible now."""
        ...

    def refused(self, why: str) -> Decision:
        """The decision where the execution that was decided on is not possible."""
        ...

    def basis(self) -> dict[str, Any]:
        """The basis of the last decision, for metrics.jsonl.

        `measured` are the last window's learners by rank, with the seconds of each rank's `own` work and of the `whole`
        iteration, and their standard errors. The others are the number of searches, the first and one for each change
        of speed, and the learners that ranks have memory for.
        """
        ...

    def state(self) -> dict[str, Any] | None:
        """For a checkpoint's header."""
        ...


class Given:
    """Learners that the settings or a recorded timeline give."""

    asks, decision, compares, comparing = False, None, False, False

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        pass

    def reading(self) -> None:
        return None

    def conclude(self, readings: Sequence[Reading | None]) -> None:
        return None

    def without(self, rank: int, k: int) -> Decision:
        raise AssertionError("nothing was decided")

    def stay(self, counts: Counts, why: str) -> Decision:
        raise AssertionError("nothing was decided")

    def refused(self, why: str) -> Decision:
        raise AssertionError("nothing was decided")

    def basis(self) -> dict[str, Any]:
        return {}

    def state(self) -> None:
        return None


class Measured:
    """Learners by measured times: `decide` after every window."""

    compares = comparing = False

    def __init__(self, history: History, tuner: Tuner) -> None:
        self._history, self._tuner = history, tuner
        self.asks = False
        self._decide()

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

    def stay(self, counts: Counts, why: str) -> Decision:
        """Stays until the next search, when there may be memory."""
        return self._follow(Decision(counts, True, f"staying with {as_sum(counts)}: {why}", self._tuner.watching))

    def anew(self, windows: Sequence[Window]) -> None:
        """Replaces the times of the settled learners by those of `windows`."""
        self._history = self._history.anew(windows)
        self._decide()

    def refused(self, why: str) -> Decision:
        raise AssertionError("it decides on no execution")

    def basis(self) -> dict[str, Any]:
        history = self._history
        return {**_told(history.windows[-1:]), "looks": history.looks, "room": history.room}

    def state(self) -> dict[str, Any]:
        return self._history.plain()

    def _decide(self) -> Decision:
        return self._follow(decide(self._history, self._tuner))

    def _follow(self, decision: Decision) -> Decision:
        self.decision, self._meter = decision, Meter(decision.span)
        return decision


class Compared:
    """The learners of `inner`, or given ones without it; once they are settled, two executions take turns until the
    faster one is found. This happens once in a run: later changes of learners keep that execution.
    """

    compares = True

    def __init__(self, inner: Measured | None, given: Counts, batch: int, execution: str, tuner: Tuner) -> None:
        """`execution` is the present one."""
        self._inner, self._batch, self._execution, self._tuner = inner, batch, execution, tuner
        self._trial: Trial | None = None
        self._tried: list[Window] = []  # the last one, where it is the basis of the last decision
        self._known = self._asks = False
        if inner is None or inner.decision.settled:
            self._begin(given if inner is None else inner.decision.counts)

    @property
    def asks(self) -> bool:
        return self._asks or (self._trial is None and self._inner is not None and self._inner.asks)

    @property
    def comparing(self) -> bool:
        return self._trial is not None

    @property
    def decision(self) -> Decision | None:
        return None if self._inner is None else self._inner.decision

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        if self._trial is not None:
            if counts == self._trial.counts:
                self._asks = self._meter.add(own, whole) or self._asks
        elif self._inner is not None:
            self._inner.measured(own, whole, counts)

    def reading(self) -> Reading | None:
        if self._trial is not None:
            return self._meter.reading()
        return None if self._inner is None else self._inner.reading()

    def conclude(self, readings: Sequence[Reading | None]) -> Decision | None:
        if self._trial is None:
            self._tried = []
            return None if self._inner is None else self._settling(self._inner.conclude(readings))
        self._asks = False
        if not enough(readings, self._turn.span):
            return None
        window = Window.of(self._turn, [reading for reading in readings if reading is not None])
        self._tried = [window]
        self._trial = trial = self._trial.add(self._turn.execution, window)
        self._follow(trial)
        if self._turn.settled:
            self._known, self._trial = True, None
            if self._inner is not None:
                self._inner.anew(trial.of(self._turn.execution))
        return self._turn

    def without(self, rank: int, k: int) -> Decision:
        assert self._inner is not None, "learners are given"
        self._trial = None
        decision = self._settling(self._inner.without(rank, k))
        assert decision is not None
        return decision

    def stay(self, counts: Counts, why: str) -> Decision:
        assert self._inner is not None, "learners are given"
        self._trial = None
        return self._inner.stay(counts, why)

    def refused(self, why: str) -> Decision:
        assert self._trial is not None, "nothing is tried"
        counts, self._trial, self._known = self._trial.counts, None, True
        return Decision(counts, True, f"staying with {self._execution}: {why}", self._tuner.watching, self._execution)

    def basis(self) -> dict[str, Any]:
        return {**(self._inner.basis() if self._inner else {}), **_told(self._tried)}

    def state(self) -> dict[str, Any]:
        return {**(self._inner.state() if self._inner else {}), "compared": self._known}

    def _settling(self, decision: Decision | None) -> Decision | None:
        if decision is not None and decision.settled and not self._known:
            self._begin(decision.counts)
        return decision

    def _begin(self, counts: Counts) -> None:
        """Begins a trial, unless all ranks have one learner: all executions are then the same."""
        if max(counts) > 1:
            self._trial = Trial(counts, self._batch, self._execution)
            self._follow(self._trial)

    def _follow(self, trial: Trial) -> None:
        self._turn = compare(trial, self._tuner)
        self._meter = Meter(self._turn.span)


def open_tuning(
    known: Mapping[str, Any], given: Counts, batch: int, execution: str, tuner: Tuner, *,
    rooms: Sequence[int] | None, caps: Sequence[Cap], compares: bool,
) -> Tuning:  # fmt: skip
    """Tuning that continues from `known`, a checkpoint's state, {} for none. Learners are `given` and run in
    `execution`, or the tuner searches for them within `caps` and `rooms`, the learners by rank that memory allows.
    `compares`: a GPU's executions take turns, once in a run.
    """
    state, inner = dict(known), None
    compared = state.pop("compared", False)
    if rooms is not None:
        history = History.of(state) if state else History.begin(len(rooms), batch)
        inner = Measured(replace(history, room=tuple(rooms), caps=tuple(caps)), tuner)
    if compares and not compared and (inner is not None or max(given) > 1):
        return Compared(inner, given, batch, execution, tuner)
    return inner or Given()


def _told(windows: Sequence[Window]) -> dict[str, Any]:
    """The entries of `basis` for the last window, {} without one."""
    return {} if not windows else {
        "measured": windows[-1].counts,
        "own": [estimate.seconds for estimate in windows[-1].own],
        "own_error": [estimate.error for estimate in windows[-1].own],
        "whole": windows[-1].whole.seconds,
        "whole_error": windows[-1].whole.error,
    }  # fmt: skip
