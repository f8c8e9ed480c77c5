"""The times of learners' passes on a GPU, on the host's clock: by events, one iteration late, without waiting."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mpibow.cuda.device.cupy_driver import Event
from mpibow.trace import Recorder, Trace


class DeviceTimes:
    """`machine` is the rank's GPU. Events carry times only while the trace records."""

    def __init__(self, machine: Any, trace: Trace) -> None:
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

    def note(self, learners: Sequence[Any]) -> None:
        """Enters the passes of the iteration before, which are over."""
        if self._zero is None or not isinstance(self._trace, Recorder):
            return
        event, zero = self._zero
        for i, learner in enumerate(learners):
            pair, learner.passes = learner.passes[0], (None, learner.passes[1])
            if pair is not None and pair[1].done:
                begin, end = (zero + round(1e6 * learner.stream.milliseconds(event, mark)) for mark in pair)
                self._trace.add(f"device {i}", "batch", begin, end)
