"""Windows and histories in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from mpibow.tune import Counts, History, Tuner, Window, decide
from mpibow.tune.meter import Estimate


def window(
    counts: Counts, own: Sequence[float], whole: float | None = None, *, error: float = 0.0, settled: bool = False
) -> Window:
    """Seconds by rank; the whole is the slowest's unless given; `error` is relative."""
    times = tuple(Estimate(time, error * time) for time in own)
    whole = max(own) if whole is None else whole
    return Window(counts, times, Estimate(whole, error * whole), 100, settled)


def history(*windows: Window, room: Sequence[int | None] | None = None) -> History:
    """Batches of 4 images."""
    ranks = len(windows[0].counts) if windows else len(room or (None,))
    return History((None,) * ranks if room is None else tuple(room), 4, windows)


def one_rank(*times: float, error: float = 0.0, room: int | None = None) -> History:
    """One rank's times with 1, 2, 3, ... learners, each measured once."""
    return history(*(window((k + 1,), [time], error=error) for k, time in enumerate(times)), room=[room])


def decided(found: History, tuner: Tuner | None = None) -> tuple[Counts, bool]:
    decision = decide(found, tuner or Tuner())
    return decision.counts, decision.settled
