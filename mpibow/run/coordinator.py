"""The coordinator: what all ranks decide alike, how many learners where and when to stop.

No rank is stopped to be asked: one that wants to talk says so in the next all-reduce (`attention`), every rank reads
the same sum at the same iteration, and only then do all of them share what they want. For that they do wait, for what
is under way and for who comes last; once or twice in a window of the tuner, and counted as waiting (`sync_wait`). From
the same requests every rank comes to the decision of rank 0; learners that differ are an error (announcer.py).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from mpibow.data.timeline import Timeline
from mpibow.tune import Counts, Reading


@dataclass(frozen=True)
class Request:
    """What one rank wants: to stop for a signal or a limit (its name), a checkpoint, W set to the true mean, tuning.

    `reading` is what its meter says, whoever asked.
    """

    stop: str = ""
    save: bool = False
    resync: bool = False
    tune: bool = False
    reading: Reading | None = None

    @property
    def attention(self) -> float:
        """1 where there is anything to talk about."""
        return float(bool(self.stop) or self.save or self.resync or self.tune)


@dataclass(frozen=True)
class Outcome:
    """What requests come to. `stop` is the reason of the first rank that has one, and `rank` that rank."""

    stop: str = ""
    rank: int = 0
    save: bool = False
    resync: bool = False

    def __str__(self) -> str:
        """The reason to stop, and which rank a signal came to."""
        return f"{self.stop} on rank {self.rank}" if self.stop.startswith("SIG") else self.stop


def settle_requests(requests: Sequence[Request]) -> Outcome:
    """The same on every rank, from every rank's request by rank."""
    rank = next((rank for rank, request in enumerate(requests) if request.stop), 0)
    save, resync = any(r.save for r in requests), any(r.resync for r in requests)
    return Outcome(requests[rank].stop, rank, save, resync)


class Coordinator:
    """Holds the timeline that the pipeline reads ahead; a change is announced so that nothing prefetched is lost.

    Changes that have passed are forgotten, so it holds few in a run of any length. In a replay all changes are
    `recorded` from the start.
    """

    def __init__(self, timeline: Timeline, prefetch: int, *, recorded: bool = False) -> None:
        self._timeline, self._prefetch, self._recorded = timeline, prefetch, recorded
        self._lock = threading.Lock()

    def timeline(self) -> Timeline:
        """The timeline as announced so far; called on the pipeline's thread as well."""
        with self._lock:
            return self._timeline

    def kept(self, iteration: int) -> Timeline:
        """The part of the timeline that a checkpoint before `iteration` needs; recorded changes are read again."""
        timeline = self.timeline().since(iteration - 1)  # averaging may start again by where that one lay
        return timeline.until(iteration) if self._recorded else timeline

    @property
    def announced(self) -> Counts:
        """The learners of the last change."""
        return self.timeline().changes[-1].counts

    @property
    def execution(self) -> str:
        """How learners run after the last change."""
        return self.timeline().changes[-1].execution

    def announce(self, iteration: int, counts: Counts, execution: str | None = None) -> int:
        """Ranks have `counts` learners from the iteration that is returned; `iteration` is the one under way.

        Every rank must call it at the same iteration with the same counts.
        """
        begin = max(iteration + self._prefetch + 1, self.timeline().changes[-1].iteration + 1)
        with self._lock:
            self._timeline = self._timeline.since(iteration - 1).announce(begin, counts, execution)
        return begin
