"""The coordinator: the common decisions of all ranks, the learners of each and when to stop.

No rank stops to exchange requests in every iteration. A rank with a request sets `attention` in the next all-reduce.
Every rank reads the same sum at the same iteration, and only then do all share their requests. They wait for exchanges
under way and for the slowest rank, once or twice in a window of the tuner, counted as waiting (`sync_wait`). The same
requests lead every rank to the same decision; learners that differ are an error (changing.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mpibow.data import Timeline
from mpibow.tune import Counts, Reading


@dataclass(frozen=True)
class Request:
    """One rank's requests: to stop for a signal or a limit (its name), a checkpoint, W set to the true mean, tuning.

    `reading` is its meter's, whichever rank asked.
    """

    stop: str = ""
    save: bool = False
    resync: bool = False
    tune: bool = False
    reading: Reading | None = None

    @property
    def attention(self) -> float:
        """1 if there is any request, else 0."""
        return float(bool(self.stop) or self.save or self.resync or self.tune)


def settle_requests(requests: Sequence[Request]) -> tuple[Request, int]:
    """The request of all ranks together, the same on all, and the first rank that has a reason to stop, else 0."""
    rank = next((rank for rank, request in enumerate(requests) if request.stop), 0)
    return Request(requests[rank].stop, any(r.save for r in requests), any(r.resync for r in requests)), rank


class Coordinator:
    """Holds the timeline that the pipeline reads ahead; a change is announced so that nothing prefetched is lost.

    Changes that have passed are forgotten, so it holds few in a run of any length. In a replay all changes are
    `recorded` from the start.
    """

    def __init__(self, timeline: Timeline, prefetch: int, *, recorded: bool = False):
        self._timeline = timeline
        self._prefetch = prefetch
        self._recorded = recorded

    def timeline(self) -> Timeline:
        """The timeline as announced so far, as a whole; called on the pipeline's thread as well."""
        return self._timeline

    def kept(self, iteration: int) -> Timeline:
        """The part of the timeline that a checkpoint before `iteration` needs; recorded changes are read again."""
        timeline = self._timeline.since(iteration - 1)  # averaging may restart by that one's position
        return timeline.until(iteration) if self._recorded else timeline

    @property
    def announced(self) -> Counts:
        """The learners of the last change."""
        return self._timeline.changes[-1].counts

    @property
    def execution(self) -> str:
        """The execution of learners after the last change."""
        return self._timeline.changes[-1].execution

    def announce(self, iteration: int, counts: Counts, execution: str | None = None) -> int:
        """Returns the iteration from which ranks have `counts` learners; `iteration` is the one under way.

        Every rank must call it at the same iteration with the same counts.
        """
        begin = max(iteration + self._prefetch + 1, self._timeline.changes[-1].iteration + 1)
        self._timeline = self._timeline.since(iteration - 1).announce(begin, counts, execution)
        return begin
