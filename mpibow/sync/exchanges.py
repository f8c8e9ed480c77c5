"""How long a GPU's exchanges took, and its learners stood still for them: by events, without waiting for any."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from mpibow.device.driver import Event, Stream


@dataclass(frozen=True)
class _Ended:
    begin: Event
    end: Event
    gradients: Sequence[Event]  # the next, where they are computed meanwhile


class Exchanges:
    """Those of a rank on `stream`, which averages. All events that are given here must carry times.

    An exchange lasts from its call until all that follows from it is done, other ranks' lateness included. Where
    learners compute meanwhile they stand still from their last gradient on; where not, for all of it.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._begin: Event | None = None
        self._last: tuple[Event, Event] | None = None
        self._known: deque[_Ended] = deque()  # of these the gradients may still be under way
        self._waited = self._busy = 0.0

    def begin(self) -> None:
        """Enqueues when the exchange begins."""
        self._begin = self._stream.record(timed=True)

    def end(self) -> Event:
        """Enqueues that it is over."""
        event = self._stream.record(timed=self._begin is not None)
        if self._begin is not None:
            self._last, self._begin = (self._begin, event), None
        return event

    def joined(self, gradients: Sequence[Event]) -> None:
        """The exchange that was begun last is over; `gradients` were computed beside it, if any were."""
        if self._last is not None:
            self._known.append(_Ended(*self._last, gradients))
            self._last = None

    def seconds(self) -> tuple[float, float]:
        """What learners stood still for, and what exchanges took, of all whose gradients are there by now."""
        while self._known and all(event.done for event in (self._known[0].end, *self._known[0].gradients)):
            ended, between = self._known.popleft(), self._stream.milliseconds
            took = between(ended.begin, ended.end)
            still = min((between(event, ended.end) for event in ended.gradients), default=took)
            self._busy += took / 1000
            self._waited += min(max(still, 0.0), took) / 1000
        return self._waited, self._busy
