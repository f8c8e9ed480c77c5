"""One rank's side of the auto-tuner: its meter, the history that all ranks share, and the decisions from it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import hypot

from mpibow.learn.learners import FUSED, STREAMS
from mpibow.system import JsonObject
from mpibow.tune import Counts, Decision, History, Meter, Reading, Tuner, Window, as_sum, decide, enough
from mpibow.tune.meter import mean
from mpibow.tune.words import told

FEWEST, MOST = 2, 3  # windows of each: something else may have held the device in one; more where it is close


class Tuning:
    """Decides on the number of learners by `history`; without one they are given. All ranks call it alike.

    With a `trial` two executions of the learners take turns, once in a run, until the faster one is found: of given
    ones at once, else as soon as their number is settled. Later changes of learners keep that execution. `compared`:
    they have, before a checkpoint.
    """

    def __init__(
        self, tuner: Tuner, history: History | None = None, trial: "Trial | None" = None, *, compared: bool = False
    ):
        self._tuner = tuner
        self.history = history
        self.compared = compared and trial is not None  # whether executions have taken turns
        if trial is not None and (compared or (history is None and max(trial.counts) == 1)):
            trial = None
        self._trial = trial
        self.decision: Decision | None = None  # the last one on the number of learners; None where they are given
        self.compares = trial is not None  # whether executions take turns, now or when learners are settled
        self.asks = False  # whether this rank's times are certain enough to ask the other ranks for theirs
        self.comparing = False  # whether executions take turns now
        self._tried = list[Window]()  # the trial's last, where it is the basis of the last decision
        self._measured: Decision | None = None  # whose learners are measured
        if history is not None:
            self._decide()
        elif trial is not None:
            self._compare(trial)

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        """Enters the seconds of an iteration with `counts` learners: of this rank's own work, and of the whole."""
        if self._measured is not None and counts == self._measured.counts:  # a change takes a while to come
            self.asks = self._meter.add(own, whole) or self.asks

    def reading(self) -> Reading | None:
        return None if self._measured is None else self._meter.reading()

    def conclude(self, readings: Sequence[Reading | None]) -> Decision | None:
        """The decision from all ranks' readings; None while the window goes on."""
        self.asks = False
        measured = self._measured
        if not self.comparing:
            self._tried = []
        if measured is None or not enough(readings, measured.span):
            return None
        window = Window.of(measured, [reading for reading in readings if reading is not None])
        if self.comparing:
            return self._turn(measured.execution, window)
        assert self.history is not None
        self.history = self.history.add(window, self._tuner)
        return self._decide()

    def without(self, rank: int, k: int) -> Decision:
        """The decision where `rank` has no memory for k learners."""
        assert self.history is not None, "learners are given"
        self.history = self.history.out_of_memory(rank, k)
        return self._decide()

    def stay(self, counts: Counts, why: str) -> Decision:
        """The decision to stay with the present learners, `counts`, until the next search: there may be memory then."""
        assert self.history is not None, "learners are given"
        return self._follow(Decision(counts, True, f"staying with {as_sum(counts)}: {why}", self._tuner.watching))

    def refused(self, why: str) -> Decision:
        """The decision where the execution that was decided on is not possible."""
        assert self._trial is not None, "nothing is tried"
        counts = self._trial.counts
        first = self._trial.first
        self._end()
        return Decision(counts, True, f"staying with {first}: {why}", self._tuner.watching, first)

    def basis(self) -> JsonObject:
        """The basis of the last decision, for metrics.jsonl.

        `measured` are the last window's learners by rank, with the seconds of each rank's `own` work and of the `whole`
        iteration, and their standard errors. The others are the number of searches, the first and one for each change
        of speed, and the learners that ranks have memory for.
        """
        history = self.history
        windows = self._tried or (history.windows[-1:] if history else ())
        basis: JsonObject = {}
        for window in windows:
            basis = {
                "measured": window.counts,
                "own": [estimate.seconds for estimate in window.own],
                "own_error": [estimate.error for estimate in window.own],
                "whole": window.whole.seconds,
                "whole_error": window.whole.error,
            }
        return {**basis, "looks": history.looks, "room": history.room} if history else basis

    def state(self) -> JsonObject | None:
        """For a checkpoint's header; None where nothing is measured."""
        compared = {"compared": self.compared} if self.compares or self.compared else {}
        return {**(asdict(self.history) if self.history else {}), **compared} or None

    def _decide(self) -> Decision:
        assert self.history is not None
        decision = self._follow(decide(self.history, self._tuner))
        if self._trial is not None and decision.settled and not self.compared:
            self._compare(replace(self._trial, counts=decision.counts, windows=()))
        return decision

    def _follow(self, decision: Decision) -> Decision:
        self.decision = decision
        self.comparing = False
        return self._measure(decision)

    def _measure(self, decision: Decision) -> Decision:
        self._measured = decision
        self._meter = Meter(decision.span)
        return decision

    def _compare(self, trial: "Trial") -> None:
        """Begins a trial, unless all ranks have one learner: all executions are then the same."""
        self.comparing = max(trial.counts) > 1
        if self.comparing:
            self._trial = trial
            self._measure(compare(trial, self._tuner))

    def _turn(self, execution: str, window: Window) -> Decision:
        """The decision after a `window` of one execution."""
        assert self._trial is not None
        self._tried = [window]
        self._trial = self._trial.add(execution, window)
        turn = self._measure(compare(self._trial, self._tuner))
        if turn.settled:
            if self.history is not None:  # the other execution's times do not hold
                self.history = self.history.anew(self._trial.of(turn.execution))
            self._end()
        return turn

    def _end(self) -> None:
        """Ends the trial: the learners that were decided on are measured again, given ones are not."""
        self.compared = True
        self.comparing = False
        self._measured = None
        if self.history is not None:
            self._decide()


@dataclass(frozen=True)
class Trial:
    """Windows of `counts` in both executions, in the order in which they were measured, that of `first` first.

    `batch` is images of a learner's batch.
    """

    counts: Counts
    batch: int
    first: str = STREAMS
    windows: tuple[tuple[str, Window], ...] = ()

    def add(self, execution: str, window: Window) -> "Trial":
        return replace(self, windows=(*self.windows, (execution, window)))

    def of(self, execution: str) -> list[Window]:
        return [window for name, window in self.windows if name == execution]


def other(execution: str) -> str:
    return STREAMS if execution == FUSED else FUSED


def compare(trial: Trial, tuner: Tuner) -> Decision:
    """The execution to run next; `settled` once it is the faster one.

    They take turns. Fused learners, which need memory beside that of streams, are chosen where an iteration is
    shorter with them by more than two standard errors.
    """
    if not trial.windows:
        return Decision(trial.counts, False, f"trying {trial.first}", tuner.looking, trial.first)
    apart = trial.of(STREAMS)
    fused = trial.of(FUSED)
    turn = other(trial.windows[-1][0])
    if len(apart) == len(fused) >= FEWEST:
        by_streams = mean([w.whole for w in apart])
        by_fused = mean([w.whole for w in fused])
        saved = by_streams.seconds - by_fused.seconds
        doubt = 2 * hypot(by_streams.error, by_fused.error)
        if abs(saved) > doubt or len(fused) == MOST:
            chosen = FUSED if saved > doubt else STREAMS
            return Decision(trial.counts, True, f"{_rates(trial)}; settled on {chosen}", tuner.watching, chosen)
    return Decision(trial.counts, False, f"{_rates(trial)}; trying {turn}", tuner.looking, turn)


def _rates(trial: Trial) -> str:
    """The last window in words, beside those of the other execution."""
    name, window = trial.windows[-1]
    images = trial.batch * sum(trial.counts)
    others = trial.of(other(name))
    rates = {other(name): images / mean([w.whole for w in others]).seconds} if others else {}
    return told(f"learners {as_sum(trial.counts)}, {name}", images / window.whole.seconds, rates)


class IterationTimes:
    """`waited` returns the seconds that this rank's learners have waited for other ranks so far."""

    def __init__(self, waited: Callable[[], float]):
        self._waited = waited
        self._last: tuple[float, float] | None = None  # the clock and the seconds waited at the beginning of the lap
        self._aside = 0.0

    def lap(self) -> tuple[float, float] | None:
        """Ends a lap and begins the next: its seconds without waiting, and all of them; None when the first begins."""
        now = time.perf_counter()
        waited = self._waited()
        last = self._last
        aside = self._aside
        self._last = (now, waited)
        self._aside = 0.0
        if last is None:
            return None
        whole = now - last[0] - aside
        return whole - (waited - last[1]), whole

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leaves out work that is not part of every iteration, and the waiting in it."""
        begin = time.perf_counter()
        waited = self._waited()
        yield
        self._aside += time.perf_counter() - begin
        if self._last is not None:
            self._last = self._last[0], self._last[1] + self._waited() - waited
