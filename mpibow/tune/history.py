"""The history: what was measured since the tuner began to look, and whether that still holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import hypot
from typing import Any

from mpibow.tune.meter import Estimate, Reading
from mpibow.tune.settings import Span, Tuner

Counts = tuple[int, ...]  # learners by rank

ANCHORS = 3  # windows that later ones are compared with: the first, so that a slow drift adds up
PERSIST = 2  # windows in a row that must have changed before the tuner looks again, one more after every look
LONGEST = 10  # and never more


@dataclass(frozen=True)
class Decision:
    """What to run until the next window closes. `reason` is one line for the log, `execution` '' where it stays."""

    counts: Counts
    settled: bool
    reason: str
    span: Span
    execution: str = ""


@dataclass(frozen=True)
class Window:
    """What all ranks measured with `counts` learners; `own` by rank. `settled`: after the choice was made."""

    counts: Counts
    own: tuple[Estimate, ...]
    whole: Estimate
    iterations: int
    settled: bool = False

    @classmethod
    def of(cls, decision: Decision, readings: Sequence[Reading]) -> Window:
        """From all ranks' readings, by rank, taken at the same iteration. Its whole is the slowest rank's: all wait."""
        whole = max((reading.whole for reading in readings), key=lambda estimate: estimate.seconds)
        own, iterations = tuple(reading.own for reading in readings), min(reading.iterations for reading in readings)
        return cls(decision.counts, own, whole, iterations, decision.settled)

    @property
    def rest(self) -> float:
        """Seconds that the whole iteration takes beyond its slowest rank's work."""
        return max(self.whole.seconds - max(own.seconds for own in self.own), 0.0)


@dataclass(frozen=True)
class History:
    """The windows of this look, the latest last; `room`: learners that fit a rank's memory, None where any number does.

    `looks` counts how often it began to look, the last time because of `why`. `batch` is images of a learner's batch.
    """

    room: tuple[int | None, ...]
    batch: int
    windows: tuple[Window, ...] = ()
    looks: int = 1
    why: str = ""

    @classmethod
    def begin(cls, ranks: int, batch: int, room: Sequence[int | None] | None = None) -> History:
        return cls((None,) * ranks if room is None else tuple(room), batch)

    def add(self, window: Window, tuner: Tuner) -> History:
        """With one more window. Where speeds have changed for good all that was measured before is forgotten."""
        windows = (*self.windows, window)
        persist = min(PERSIST + self.looks - 1, LONGEST)
        recent = windows[-persist:]
        same = [w for w in windows[:-persist] if w.counts == window.counts]
        if same and all(w.counts == window.counts for w in recent):
            changed = _changed(same[:ANCHORS], recent, tuner.drift)
            if changed:
                fresh = tuple(replace(w, settled=False) for w in recent[-PERSIST:])
                return replace(self, windows=fresh, looks=self.looks + 1, why=changed)
        watched = [i for i, w in enumerate(windows) if w.settled]
        if len(watched) > ANCHORS + LONGEST:  # the run may last for weeks
            windows = windows[: watched[ANCHORS]] + windows[watched[ANCHORS] + 1 :]
        return replace(self, windows=windows)

    def anew(self, windows: Sequence[Window]) -> History:
        """Settled on what `windows` were measured with; nothing else is known: another execution has other times."""
        return replace(self, windows=tuple(replace(window, settled=True) for window in windows))

    def out_of_memory(self, rank: int, k: int) -> History:
        """After `rank` had no memory for `k` learners: it never tries so many again."""
        fits = max(k - 1, 1)
        room = [fits if r == rank and (have is None or have > fits) else have for r, have in enumerate(self.room)]
        return replace(self, room=tuple(room))

    def plain(self) -> dict[str, Any]:
        """Numbers, texts, lists and dicts only, for JSON; the inverse of `of`."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> History:
        windows = tuple(_window(window) for window in plain["windows"])
        return cls(**{**plain, "room": tuple(plain["room"]), "windows": windows})


def _window(plain: Mapping[str, Any]) -> Window:
    own = tuple(Estimate(**estimate) for estimate in plain["own"])
    return Window(**{**plain, "counts": tuple(plain["counts"]), "own": own, "whole": Estimate(**plain["whole"])})


def _changed(before: Sequence[Window], after: Sequence[Window], drift: float) -> str:
    """What takes another time in all windows of `after` than in those of `before`, '' if nothing does."""
    names = [f"rank {rank}" for rank in range(len(before[0].own))] + ["the whole iteration"]
    for i, name in enumerate(names):
        then, now = ([(*window.own, window.whole)[i] for window in windows] for windows in (before, after))
        old, new = mean(then), mean(now)
        slower = all(e.seconds > (1 + drift) * old.seconds + 3 * e.error for e in now)
        faster = all((1 + drift) * (e.seconds + 3 * e.error) < old.seconds for e in now)
        if slower or faster:
            return f"{name} takes {1e3 * new.seconds:.3g} ms an iteration instead of {1e3 * old.seconds:.3g}"
    return ""


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """Of independent estimates of the same time."""
    n = len(estimates)
    return Estimate(sum(e.seconds / n for e in estimates), hypot(*(e.error / n for e in estimates)))
