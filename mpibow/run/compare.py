"""compare(trial): which of two executions of the same learners is faster. A pure function of windows of both.

They are measured in turn, in windows as `decide` has them:

    trial = Trial(counts, batch, execution)
    decision = compare(trial, tuner)                          all ranks go to decision.execution at one iteration
    trial = trial.add(decision.execution, Window.of(decision, readings))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot

from mpibow.learn.learners import FUSED, STREAMS
from mpibow.tune import Counts, Decision, Tuner, Window
from mpibow.tune.meter import mean
from mpibow.tune.words import as_sum, told

FEWEST, MOST = 2, 3  # windows of each: something else may have held the device in one; more where it is close


@dataclass(frozen=True)
class Trial:
    """Windows of `counts` in both executions, in the order in which they were measured, that of `first` first.

    `batch` is images of a learner's batch.
    """

    counts: Counts
    batch: int
    first: str = STREAMS
    windows: tuple[tuple[str, Window], ...] = ()

    def add(self, execution: str, window: Window) -> Trial:
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
    apart, fused, turn = trial.of(STREAMS), trial.of(FUSED), other(trial.windows[-1][0])
    if len(apart) == len(fused) >= FEWEST:
        by_streams, by_fused = mean([w.whole for w in apart]), mean([w.whole for w in fused])
        saved, doubt = by_streams.seconds - by_fused.seconds, 2 * hypot(by_streams.error, by_fused.error)
        if abs(saved) > doubt or len(fused) == MOST:
            chosen = FUSED if saved > doubt else STREAMS
            return Decision(trial.counts, True, f"{_told(trial)}; settled on {chosen}", tuner.watching, chosen)
    return Decision(trial.counts, False, f"{_told(trial)}; trying {turn}", tuner.looking, turn)


def _told(trial: Trial) -> str:
    """The last window in words, beside those of the other execution."""
    (name, window), images = trial.windows[-1], trial.batch * sum(trial.counts)
    others = trial.of(other(name))
    rates = {other(name): images / mean([w.whole for w in others]).seconds} if others else {}
    return told(f"learners {as_sum(trial.counts)}, {name}", images / window.whole.seconds, rates)
