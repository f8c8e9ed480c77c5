"""A learner on a GPU: a stream, a replica, and forward and backward that are launched at once. It never waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpibow.data.slots import Slot
from mpibow.device.driver import Event
from mpibow.graph.plan import BoundPlan
from mpibow.graph.wide import MARK
from mpibow.learn.settings import Sgd


class DeviceLearner:
    """Learner number `number`. `bound` is bound to a replica's weights, gradient and statistics on `gpu`.

    Loss, hits and |gradient|^2 stay there (Gpu.flat.reports); who averages reads them, `done` is when.
    """

    def __init__(
        self, number: int, bound: BoundPlan, gpu: Any, weights: Any, gradient: Any, statistics: Any, update: Sgd
    ) -> None:
        machine = gpu.machine
        self.plan, self._machine = bound, machine
        self.stream = machine.driver.stream()
        self.done: Event | None = None
        self.timed = False
        self.passes: tuple[tuple[Event, Event] | None, ...] = (None, None)  # begins and ends of the last two, if timed
        runs = [
            *gpu.before(bound, weights), *bound.runs,
            *gpu.behind(number, bound, gradient, update.clip_value, update.clip_norm),
        ]  # fmt: skip
        self._executor = gpu.executor(f"learner {number}", runs, self.stream)
        kept = machine.host(statistics)
        machine.stream.synchronise()  # arrays are as they were made, and the weights' row is written
        self._executor.prepare()
        machine.put(statistics, kept)

    def compute(self, slot: Slot) -> None:
        """Enqueues: the slot copied in and given back, then the gradient of the mean loss of its batch."""
        stream, machine = self.stream, self._machine
        if machine.ready is not None:
            stream.wait(machine.ready)
        slot.await_on(stream)
        arrays = slot.device.arrays
        for name, array in self.plan.inputs.items():
            machine.driver.copy(array, arrays[name], stream)
        slot.release_after(stream)
        begin = stream.record(timed=True) if self.timed else None
        self._executor.timed = self.timed
        self.done = self._executor.run()
        self.passes = self.passes[1], None if begin is None else (begin, self.done)


class FusedLearners:
    """All learners of a rank, one stream and one pass: the same gradients as theirs, to rounding. `bound` is the plan
    of all; the rows of weights, gradients and statistics (k, size) are joined in front of it, and parted behind.
    """

    def __init__(self, bound: BoundPlan, gpu: Any, replicas: Any, count: int, around: Any) -> None:
        """`around` gives what is run before and behind the plan's own runs."""
        self.plan, self._gpu, self._machine = bound, gpu, gpu.machine
        self.stream = self._machine.driver.stream()
        self.done: Event | None = None
        self.timed = False
        self.passes: tuple[tuple[Event, Event] | None, ...] = (None, None)
        before, behind = around
        self._executor = gpu.executor("learners", [*before, *bound.runs, *behind], self.stream)
        rows = [replicas.row(i)[2] for i in range(count)]
        kept = [self._machine.host(row) for row in rows]
        self._machine.stream.synchronise()
        self._executor.prepare()
        for row, was in zip(rows, kept, strict=True):
            self._machine.put(row, was)

    def compute(self, slots: Sequence[Slot]) -> None:
        """Enqueues: every slot copied in and given back, then all gradients."""
        stream, machine = self.stream, self._machine
        if machine.ready is not None:
            stream.wait(machine.ready)
        for r, slot in enumerate(slots):
            slot.await_on(stream)
            for name, array in slot.device.arrays.items():
                if (mine := self.plan.inputs.get(f"{name}{MARK}{r}")) is not None:
                    machine.driver.copy(mine, array, stream)
            slot.release_after(stream)
        begin = stream.record(timed=True) if self.timed else None
        self._executor.timed = self.timed
        self.done = self._executor.run()
        self.passes = self.passes[1], None if begin is None else (begin, self.done)


def last_events(learners: Sequence[Any], count: Callable[[], int]) -> Callable[[], list[Event]]:
    """When the last gradients of the first `count` learners are there."""
    return lambda: [learner.done for learner in learners[: count()] if learner.done is not None]
