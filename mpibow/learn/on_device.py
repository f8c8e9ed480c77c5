"""A learner on a GPU: a stream, a replica, and forward and backward that are launched at once. It never waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpibow.data.slots import Slot
from mpibow.device.driver import Event, Stream
from mpibow.device.feed import Packing
from mpibow.graph.plan import BoundPlan
from mpibow.graph.wide import MARK
from mpibow.learn.settings import Sgd


class Inputs:
    """A plan's inputs in a block that is packed as slots are: so one copy takes all of a slot."""

    def __init__(self, packing: Packing, block: Any) -> None:
        self.block, self.arrays = block, packing.views(block)
        self._begins, self._whole = dict(packing.begins), False

    def bound(self, plan: Mapping[str, Any], mark: str = "") -> None:
        """To the inputs `plan`, whose names end with `mark`: they may be others, of another type."""
        pairs = [(plan[name + mark], own) for name, own in self.arrays.items() if name + mark in plan]
        self._whole = all(mine.ptr == own.ptr for mine, own in pairs)
        self._targets = {name: plan[name + mark] for name in self.arrays if name + mark in plan}

    def fill(self, machine: Any, slot: Slot, stream: Stream) -> None:
        """Enqueues that the slot is copied in."""
        if self._whole and slot.device.packing.begins == self._begins:
            machine.driver.copy(self.block, slot.device.block, stream)
        else:
            for name, target in self._targets.items():
                machine.driver.copy(target, slot.device.arrays[name], stream)


class DeviceLearner:
    """Learner number `number`. `bound` is bound to a replica's weights, gradient and statistics on `gpu`.

    Loss, hits and |gradient|^2 stay there (Gpu.flat.reports); who averages reads them, `done` is when.
    """

    def __init__(
        self, number: int, bound: BoundPlan, gpu: Any, weights: Any, gradient: Any, statistics: Any, update: Sgd,
        inputs: Inputs,
    ) -> None:  # fmt: skip
        machine = gpu.machine
        self._machine, self._inputs = machine, inputs
        inputs.bound(bound.inputs)
        self.stream = machine.driver.stream()
        self.done: Event | None = None
        self.timed = self.dated = False  # whether passes are, and when they are done
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
        self._inputs.fill(machine, slot, stream)
        slot.release_after(stream)
        begin = stream.record(timed=True) if self.timed else None
        self._executor.timed = self.timed or self.dated
        self.done = self._executor.run()
        self.passes = self.passes[1], None if begin is None else (begin, self.done)


class FusedLearners:
    """All learners of a rank, one stream and one pass: the same gradients as theirs, to rounding. `bound` is the plan
    of all; the rows of weights, gradients and statistics (k, size) are joined in front of it, and parted behind.
    """

    def __init__(
        self, bound: BoundPlan, gpu: Any, replicas: Any, count: int, around: Any, inputs: Sequence[Inputs]
    ) -> None:
        """`around` gives what is run before and behind the plan's own runs, `inputs` are the learners' own."""
        self._inputs, self._machine = inputs, gpu.machine
        for r, own in enumerate(inputs):
            own.bound(bound.inputs, f"{MARK}{r}")
        self.stream = self._machine.driver.stream()
        self.done: Event | None = None
        self.timed = self.dated = False  # whether passes are, and when they are done
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
            self._inputs[r].fill(machine, slot, stream)
            slot.release_after(stream)
        begin = stream.record(timed=True) if self.timed else None
        self._executor.timed = self.timed or self.dated
        self.done = self._executor.run()
        self.passes = self.passes[1], None if begin is None else (begin, self.done)


def last_events(learners: Sequence[Any], count: Callable[[], int]) -> Callable[[], list[Event]]:
    """When the last gradients of the first `count` learners are there."""
    return lambda: [learner.done for learner in learners[: count()] if learner.done is not None]
