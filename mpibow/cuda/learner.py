"""Learners on a GPU: a stream, and forward and backward that are launched at once. They never wait."""

from collections.abc import Callable, Sequence

from mpibow.graph import Plan
from mpibow.graph.wide import MARK
from mpibow.learn.learners import Binder
from mpibow.learn.replica import Replicas
from mpibow.optim import Update
from mpibow.system import in_words

from .device.array import PlanArray, PlanArrays
from .device.cupy_driver import Event, Stream
from .device.machine import Machine
from .feed.feeder import Packing
from .feed.togpu import GpuSlot
from .kernels.cudnn import Enqueue
from .kernels.fused import fused_bytes
from .kernels.opened import Gpu
from .times import DeviceTimes


class Inputs:
    """A plan's inputs in a block that is packed as slots are: so one copy takes all of a slot."""

    def __init__(self, packing: Packing, block: PlanArray):
        self.block, self.arrays = block, packing.views(block)
        self._begins, self._whole = dict(packing.begins), False

    def bound(self, plan: PlanArrays, mark: str = "") -> None:
        """Binds to the inputs `plan`, whose names end with `mark`: they may be others, of another type."""
        self._targets = {name: plan[name + mark] for name in self.arrays if name + mark in plan}
        self._whole = all(target.ptr == self.arrays[name].ptr for name, target in self._targets.items())

    def fill(self, machine: Machine, slot: GpuSlot, stream: Stream) -> None:
        """Enqueues the copy of the slot."""
        if self._whole and slot.device.packing.begins == self._begins:
            machine.driver.copy(self.block, slot.device.block, stream)
        else:
            for name, target in self._targets.items():
                machine.driver.copy(target, slot.device.arrays[name], stream)


class DeviceLearner:
    """A learner, or all of a rank that are fused: a stream, and the `runs` of a plan that is bound on `gpu`.

    Each has its own `inputs`, and `statistics`, rows (size,). Loss, hits and |gradient|^2 stay on the GPU
    (Gpu.flat.reports); averaging reads them after the event `done`.
    """

    def __init__(
        self,
        name: str,
        runs: Sequence[Enqueue],
        inputs: Sequence[Inputs],
        statistics: Sequence[PlanArray],
        gpu: Gpu,
        times: DeviceTimes,
        *,
        dated: bool,
    ):
        self._inputs, self._machine = inputs, gpu.machine
        self.stream = self._machine.driver.stream()
        self.done: Event | None = None
        self._times, self._dated = times, dated  # `dated`: whether `done` carries a time
        self.passes: tuple[tuple[Event, Event] | None, ...] = (None, None)  # begins and ends of the last two, if timed
        self._executor = gpu.executor(name, runs, self.stream)
        kept = [self._machine.host(row) for row in statistics]
        self._machine.stream.synchronise()  # arrays are as they were made, and the weights' rows are written
        self._executor.prepare()
        for row, was in zip(statistics, kept, strict=True):
            self._machine.put(row, was)

    def compute(self, *slots: GpuSlot) -> None:
        """Enqueues: every slot copied in and given back, then the gradients of the mean losses of their batches."""
        stream, machine = self.stream, self._machine
        if machine.ready is not None:
            stream.wait(machine.ready)
        for own, slot in zip(self._inputs, slots, strict=True):
            slot.await_on(stream)
            own.fill(machine, slot, stream)
            slot.release_after(stream)
        timed = self._times.on()
        begin = stream.record(timed=True) if timed else None
        self._executor.timed = timed or self._dated
        self.done = self._executor.run()
        self.passes = self.passes[1], None if begin is None else (begin, self.done)

    def wait(self) -> None:
        """Waits until all its enqueued work is done."""
        self.stream.synchronise()


class GpuBinder(Binder):
    """Learners on a `gpu`, whose inputs are packed as their slots are; `fused_plan(k)` is that of k learners in one.

    `dated`: they record when their gradients are done.
    """

    def __init__(
        self,
        replicas: Replicas,
        update: Update,
        gpu: Gpu,
        packing: Packing,
        fused_plan: Callable[[int], Plan],
        times: DeviceTimes,
        *,
        dated: bool,
    ):
        super().__init__(replicas, update)
        self._times, self._dated = times, dated
        self._gpu, self._packing, self._fused_plan = gpu, packing, fused_plan

    def one(self, plan: Plan, i: int) -> DeviceLearner:
        _, gradient, statistics = row = self._replicas.row(i)
        inputs, gpu = self._inputs(), self._gpu
        bound, runs = gpu.bound(plan, *row, inputs.arrays)
        inputs.bound(bound.inputs)
        runs.append(gpu.behind(i, bound, gradient, *self._limits))
        return DeviceLearner(f"learner {i}", runs, [inputs], [statistics], gpu, self._times, dated=self._dated)

    def fused(self, plan: Plan, count: int) -> DeviceLearner:
        """The same gradients as those on streams, to rounding: rows of replicas are joined before, and parted behind.

        Raises MemoryError, and ShapeError where an operator has no such form.
        """
        wide = self._fused_plan(count)
        inputs = [self._inputs() for _ in range(count)]
        arrays = {f"{name}{MARK}{r}": array for r, own in enumerate(inputs) for name, array in own.arrays.items()}
        bound, runs = self._gpu.fuse(wide, plan, self._replicas, count, self._limits, arrays)
        for r, own in enumerate(inputs):
            own.bound(bound.inputs, f"{MARK}{r}")
        statistics = [self._replicas.row(r)[2] for r in range(count)]
        return DeviceLearner("learners", runs, inputs, statistics, self._gpu, self._times, dated=self._dated)

    def expect(self, count: int) -> None:
        """No kernel of a GPU's waits for another learner."""

    def lack(self, room: Callable[[], int], apart: int, fused: int | None) -> str:
        """Checks fused learners only, with all ranks: binding refuses others itself."""
        if fused is None:
            return ""
        free = room()
        need = fused_bytes(self._fused_plan(fused)) if fused else 0
        if need <= free:
            return ""
        where = self._gpu.machine.found.gpu
        return f"fused learners need {in_words(need)}; only {in_words(free)} may be used on {where}"

    def _inputs(self) -> Inputs:
        """A learner's own inputs, packed as its slots are."""
        return Inputs(self._packing, self._gpu.machine.zeros(self._packing.size, "uint8", "inputs of learners"))
