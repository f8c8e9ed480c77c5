"""The times of a GPU's exchanges, and of its learners' standing still for them: by events, without waiting for any."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from mpibow.cuda.device.cupy_driver import Event, Stream


@dataclass(frozen=True)
class _Ended:
    begin: Event
    end: Event
    gradients: Sequence[Event]  # the next, where they are computed meanwhile


class Exchanges:
    """The exchanges of a rank on `stream`, which averages. All events passed in must carry times.

    An exchange lasts from its call until all that follows from it is done, other ranks' lateness included. If learners
    compute meanwhile, they stand still from their last gradient on; if not, for all of it.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._begin: Event | None = None
        self._last: tuple[Event, Event] | None = None
        self._known: deque[_Ended] = deque()  # their gradients may still be under way
        self._waited = self._busy = 0.0

    def begin(self) -> None:
        """Enqueues the event of the exchange's begin."""
        self._begin = self._stream.record(timed=True)

    def end(self) -> Event:
        """Enqueues the event of its end."""
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
        """The seconds that learners stood still, and that exchanges took, of exchanges whose gradients are done."""
        while self._known and all(event.done for event in (self._known[0].end, *self._known[0].gradients)):
            ended, between = self._known.popleft(), self._stream.milliseconds
            took = between(ended.begin, ended.end)
            still = min((between(event, ended.end) for event in ended.gradients), default=took)
            self._busy += took / 1000
            self._waited += min(max(still, 0.0), took) / 1000
        return self._waited, self._busy
