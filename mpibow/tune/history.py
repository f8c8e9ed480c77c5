"""The history: the measurements since the tuner began to look, and whether they still hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpibow.bounds import Count, Natural

from .meter import Estimate, Reading, mean
from .tuner import Tuner, WindowSpan

Counts = tuple[int, ...]  # learners by rank
Cores = tuple[int | None, ...]  # learners that have a core of their own, by rank; None: that is not known

ANCHORS = 3  # windows that later ones are compared with: the first, so that a slow drift adds up
PERSIST = 2  # windows in a row that must have changed before the tuner looks again, one more after every look
LONGEST = 10  # and never more
DOUBLINGS = 4  # of the number of windows after which it looks again though nothing has changed


@dataclass(frozen=True)
class Decision:
    """The learners to run until the next window closes. `reason` is one line for the log.

    `execution` is for others, who decide how learners run; '' is as they do.
    """

    counts: Counts
    settled: bool
    reason: str
    span: WindowSpan
    execution: str = ""


@dataclass(frozen=True)
class Window:
    """All ranks' measurements with `counts` learners; `own` by rank. `settled`: after the choice was made."""

    counts: Counts
    own: tuple[Estimate, ...]
    whole: Estimate
    settled: bool = False

    @classmethod
    def of(cls, decision: Decision, readings: Sequence[Reading]) -> "Window":
        """A window of all ranks' readings at one iteration, by rank. Its whole is the slowest rank's: all wait."""
        whole = max((reading.whole for reading in readings), key=lambda estimate: estimate.seconds)
        return cls(decision.counts, tuple(reading.own for reading in readings), whole, decision.settled)

    @property
    def rest(self) -> float:
        """Seconds that the whole iteration takes beyond its slowest rank's work."""
        return max(self.whole.seconds - max(own.seconds for own in self.own), 0.0)


@dataclass(frozen=True)
class Cap:
    """No rank may have more than `most` learners, whatever memory there is; `why` ends the log's line."""

    most: int
    why: str


@dataclass(frozen=True)
class History:
    """The windows of this look, the latest last; `room`: learners that fit a rank's memory, None if any number does.

    `looks` counts how often it began to look, at first and where speeds had changed; `calm` the settled windows since;
    `vain` how often in a row it looked only because these were many. `why` is of the last time. `batch` is images of a
    learner's batch. `caps` are what the run's settings allow beside the tuner's own. Without `cores`
    nothing is known of them.
    """

    room: tuple[int | None, ...]
    batch: Count
    windows: tuple[Window, ...] = ()
    looks: Count = 1
    why: str = ""
    caps: tuple[Cap, ...] = ()
    cores: Cores = ()
    calm: Natural = 0
    vain: Natural = 0

    @classmethod
    def begin(cls, ranks: int, batch: int) -> "History":
        return cls((None,) * ranks, batch)

    def add(self, window: Window, tuner: Tuner) -> "History":
        """Adds a window. If speeds have changed for good, all earlier measurements are dropped.

        They are also dropped if nothing has changed for `pause` windows, as a core that others have left shows in no
        time of learners that do without it. That number doubles after every such look that ended where it began.
        """
        windows = (*self.windows, window)
        if why := _news(windows, min(PERSIST + self.looks - 1, LONGEST), tuner.drift):
            return self._again(windows, why, looks=self.looks + 1, vain=0)
        if not window.settled:
            return replace(self, windows=windows, calm=0)
        calm = self.calm + 1
        vain = self.vain if window.counts == windows[0].counts else 0  # the counts that the look began with
        if calm >= max(tuner.pause, PERSIST) << min(vain, DOUBLINGS):
            return self._again(
                windows, f"no change for {calm * tuner.watch:g} s or more", looks=self.looks, vain=vain + 1
            )
        return replace(self, windows=_trimmed(windows), calm=calm, vain=vain)

    def _again(self, windows: Sequence[Window], why: str, *, looks: int, vain: int) -> "History":
        """Begins a new look; keeps the last PERSIST windows alone, as few after every look."""
        fresh = tuple(replace(window, settled=False) for window in windows[-PERSIST:])
        return replace(self, windows=fresh, why=why, looks=looks, calm=0, vain=vain)

    def anew(self, windows: Sequence[Window]) -> "History":
        """Settles on the counts of `windows`, and drops all others: another execution has other times."""
        return replace(self, windows=tuple(replace(window, settled=True) for window in windows), calm=0, vain=0)

    def out_of_memory(self, rank: int, k: int) -> "History":
        """After `rank` had no memory for `k` learners: it never tries so many again."""
        fits = max(k - 1, 1)
        room = tuple(fits if r == rank and (have is None or have > fits) else have for r, have in enumerate(self.room))
        return replace(self, room=room)


def _news(windows: Sequence[Window], persist: int, drift: float) -> str:
    """The lasting change, '' if there is none: it shows in the last `persist` windows, all of the same counts.

    They are compared with the first ANCHORS of the earlier windows of these counts: later ones would follow a slow
    drift.
    """
    counts = windows[-1].counts
    recent = windows[-persist:]
    anchors = [w for w in windows[:-persist] if w.counts == counts][:ANCHORS]
    if not anchors or any(w.counts != counts for w in recent):
        return ""
    for i, name in enumerate([f"rank {rank}" for rank in range(len(anchors[0].own))] + ["the whole iteration"]):
        then, now = ([(*window.own, window.whole)[i] for window in windows] for windows in (anchors, recent))
        old = mean(then)
        new = mean(now)
        slower = all(e.seconds > (1 + drift) * old.seconds + 3 * e.error for e in now)
        faster = all((1 + drift) * (e.seconds + 3 * e.error) < old.seconds for e in now)
        if slower or faster:
            return f"{name} takes {1e3 * new.seconds:.3g} ms per iteration instead of {1e3 * old.seconds:.3g}"
    return ""


def _trimmed(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """Drops a window that later ones are not compared with any more: the run may last for weeks."""
    watched = [i for i, w in enumerate(windows) if w.settled]
    if len(watched) <= ANCHORS + LONGEST:
        return windows
    middle = watched[ANCHORS]
    return windows[:middle] + windows[middle + 1 :]
