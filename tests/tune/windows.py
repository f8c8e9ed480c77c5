"""Windows and histories in a few words."""

from collections.abc import Callable, Sequence

from mpibow.tune import Counts, Decision, History, Tuner, Window, decide
from mpibow.tune.meter import Estimate


def tuner_of(threshold: float = 0.03, most: int = 64, **constants: float) -> Tuner:
    """A tuner with other constants."""
    tuner = type("TunerOfTest", (Tuner,), constants)(threshold, most)
    return tuner


def window(
    counts: Counts, own: Sequence[float], whole: float | None = None, *, error: float = 0.0, settled: bool = False
) -> Window:
    """Seconds by rank; the whole is the slowest's unless given; `error` is relative."""
    times = tuple(Estimate(time, error * time) for time in own)
    whole = max(own) if whole is None else whole
    return Window(counts, times, Estimate(whole, error * whole), settled)


def history(*windows: Window, room: Sequence[int | None] | None = None) -> History:
    """Batches of 4 images."""
    ranks = len(windows[0].counts) if windows else len(room or (None,))
    return History((None,) * ranks if room is None else tuple(room), 4, windows)


def one_rank(*times: float, room: int | None = None) -> History:
    """One rank's times with 1, 2, 3, ... learners, each measured once."""
    return history(*(window((k + 1,), [time]) for k, time in enumerate(times)), room=[room])


def decided(found: History, tuner: Tuner | None = None) -> tuple[Counts, bool]:
    decision = decide(found, tuner or Tuner())
    return decision.counts, decision.settled


def walk(
    times: Sequence[float] | Callable[[Counts], Sequence[float]],
    tuner: Tuner | None = None,
    start: History | None = None,
    *,
    rest: float = 0.0,
) -> list[Decision]:
    """All decisions until it settles, where one rank takes `times` with 1, 2, ... learners, or ranks what they say."""
    found, tuner = start or History.begin(1, 4), tuner or Tuner()
    decisions = [decide(found, tuner)]
    while not decisions[-1].settled:
        counts = decisions[-1].counts
        own = times(counts) if callable(times) else [times[counts[0] - 1]]
        found = found.add(window(counts, own, max(own) + rest), tuner)
        decisions.append(decide(found, tuner))
    return decisions


def path(decisions: Sequence[Decision]) -> list[int]:
    """The learners of one rank, decision by decision."""
    return [decision.counts[0] for decision in decisions]
