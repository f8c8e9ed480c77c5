"""Times on a GPU, by events and without waiting: of learners' passes, of exchanges, of standing still for them."""

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpibow.trace import Recorder, Trace

from .device.cupy_driver import Event, Stream
from .device.machine import Machine

if TYPE_CHECKING:
    from .learner import DeviceLearner


class DeviceTimes:
    """`machine` is the rank's GPU. Events carry times only while the trace records."""

    def __init__(self, machine: Machine, trace: Trace):
        self._machine, self._trace = machine, trace
        self._zero: tuple[Event, int] | None = None  # an event, and when it came in nanoseconds of the host's clock

    def on(self) -> bool:
        """Whether a pass that begins now is timed."""
        on = isinstance(self._trace, Recorder) and self._trace.on
        if on and self._zero is None:
            event = self._machine.stream.record(timed=True)
            event.synchronise()  # once: it is what all times count from
            self._zero = event, time.perf_counter_ns()
        return on

    def note(self, learners: Sequence["DeviceLearner"]) -> None:
        """Enters the passes of the iteration before, which are over."""
        if self._zero is None or not isinstance(self._trace, Recorder):
            return
        event, zero = self._zero
        for i, learner in enumerate(learners):
            pair, learner.passes = learner.passes[0], (None, learner.passes[1])
            if pair is not None and pair[1].done:
                begin, end = (zero + round(1e6 * learner.stream.milliseconds(event, mark)) for mark in pair)
                self._trace.add(f"device {i}", "batch", begin, end)


class Exchanges:
    """The exchanges of a rank on `stream`, which averages. All events passed in must carry times.

    An exchange lasts from its call until all that follows from it is done, other ranks' lateness included. If learners
    compute meanwhile, they stand still from their last gradient on; if not, for all of it.
    """

    def __init__(self, stream: Stream):
        self._stream = stream
        self._begin: Event | None = None
        self._last: tuple[Event, Event] | None = None
        # Begin, end, and the next gradients, where they are computed meanwhile: those may still be under way.
        self._known = deque[tuple[Event, Event, Sequence[Event]]]()
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
            self._known.append((*self._last, gradients))
            self._last = None

    def seconds(self) -> tuple[float, float]:
        """The seconds that learners stood still, and that exchanges took, of exchanges whose gradients are done."""
        between = self._stream.milliseconds
        while self._known:
            begin, end, gradients = self._known[0]
            if not all(event.done for event in (end, *gradients)):
                break
            self._known.popleft()
            took = between(begin, end)
            still = min((between(event, end) for event in gradients), default=took)
            self._busy += took / 1000
            self._waited += min(max(still, 0.0), took) / 1000
        return self._waited, self._busy
