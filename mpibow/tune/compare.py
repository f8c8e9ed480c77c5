"""compare(trial): which of two executions of the same learners is faster. A pure function of windows of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot

from mpibow.tune.history import Counts, Decision, Window
from mpibow.tune.meter import mean
from mpibow.tune.settings import Tuner

STREAMS, FUSED = "streams", "fused"
LEAST, MOST = 2, 3  # windows of each: something else may have held the device in one; more where it is close


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


def compare(trial: Trial, tuner: Tuner) -> Decision:
    """What to run next; `settled` once that is the faster one.

    They take turns. Fused learners, which need memory beside that of streams, are taken where two standard errors say
    that an iteration is shorter with them.
    """
    apart, fused = trial.of(STREAMS), trial.of(FUSED)
    turn = (trial.first, FUSED if trial.first == STREAMS else STREAMS)[len(trial.windows) % 2]
    if not trial.windows:
        return Decision(trial.counts, False, f"trying {turn}", tuner.looking, turn)
    told = _told(trial)
    if len(apart) == len(fused) >= LEAST:
        own, other = mean([w.whole for w in apart]), mean([w.whole for w in fused])
        saved, doubt = own.seconds - other.seconds, 2 * hypot(own.error, other.error)
        if abs(saved) > doubt or len(fused) == MOST:
            chosen = FUSED if saved > doubt else STREAMS
            return Decision(trial.counts, True, f"{told}; settled on {chosen}", tuner.watching, chosen)
    return Decision(trial.counts, False, f"{told}; trying {turn}", tuner.looking, turn)


def _told(trial: Trial) -> str:
    """The last window in words, beside those of the other execution."""
    (name, window), images = trial.windows[-1], trial.batch * sum(trial.counts)
    counts, rate = " + ".join(map(str, trial.counts)), images / window.whole.seconds
    text = f"learners {counts}, {name}: {rate:,.0f} images/s"
    other = STREAMS if name == FUSED else FUSED
    if not (others := trial.of(other)):
        return text
    return f"{text}, {mean([w.whole for w in others]).seconds / window.whole.seconds:.2f} times those of {other}"
