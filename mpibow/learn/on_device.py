"""Learners on a GPU: a stream, and forward and backward that are launched at once. They never wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpibow.data.slots import Slot
from mpibow.device.driver import Event, Stream
from mpibow.device.feed import Packing

STREAMS, FUSED = "streams", "fused"  # executions: every learner is a DeviceLearner, or all are one


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
    """A learner, or all of a rank that are fused: a stream, and the `runs` of a plan that is bound on `gpu`.

    Each has its own of `inputs` and `statistics`, rows (size,). Loss, hits and |gradient|^2 stay there
    (Gpu.flat.reports); who averages reads them, `done` is when.
    """

    def __init__(
        self, name: str, runs: Sequence[Any], inputs: Sequence[Inputs], statistics: Sequence[Any], gpu: Any
    ) -> None:
        self._inputs, self._machine = inputs, gpu.machine
        self.stream = self._machine.driver.stream()
        self.done: Event | None = None
        self.timed = self.dated = False  # whether passes are, and when they are done
        self.passes: tuple[tuple[Event, Event] | None, ...] = (None, None)  # begins and ends of the last two, if timed
        self._executor = gpu.executor(name, runs, self.stream)
        kept = [self._machine.host(row) for row in statistics]
        self._machine.stream.synchronise()  # arrays are as they were made, and the weights' rows are written
        self._executor.prepare()
        for row, was in zip(statistics, kept, strict=True):
            self._machine.put(row, was)

    def compute(self, *slots: Slot) -> None:
        """Enqueues: every slot copied in and given back, then the gradients of the mean losses of their batches."""
        stream, machine = self.stream, self._machine
        if machine.ready is not None:
            stream.wait(machine.ready)
        for own, slot in zip(self._inputs, slots, strict=True):
            slot.await_on(stream)
            own.fill(machine, slot, stream)
            slot.release_after(stream)
        begin = stream.record(timed=True) if self.timed else None
        self._executor.timed = self.timed or self.dated
        self.done = self._executor.run()
        self.passes = self.passes[1], None if begin is None else (begin, self.done)
