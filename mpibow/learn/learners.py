"""The learners of one rank: each bound once, and run on streams of their own or fused, as many as are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mpibow.data.slots import Slot
from mpibow.device.driver import Event
from mpibow.device.feed import Packing
from mpibow.device.memory import in_words
from mpibow.errors import DeviceError
from mpibow.graph.graph import Array
from mpibow.graph.plan import Plan
from mpibow.graph.wide import MARK
from mpibow.kernels.cuda.fused import fused_bytes
from mpibow.learn.learner import ASSIGNMENTS, AnyLearner, Learner, Task
from mpibow.learn.on_device import FUSED, DeviceLearner, Inputs
from mpibow.learn.replica import Replicas
from mpibow.optim.sgd import Sgd


class Learners:
    """Learner i has row i of `replicas`; `plan` is one's, `fused_plan(k)` that of k fused ones of a `gpu`.

    `packing` is how slots lie there. One that is new takes `size` bytes; `dated`: a GPU's note when gradients are done.
    """

    def __init__(
        self, plan: Plan, replicas: Replicas, update: Sgd, assignment: str, size: int, gpu: Any, packing: Packing,
        fused_plan: Callable[[int], Plan], *, dated: bool,
    ) -> None:  # fmt: skip
        self.plan, self.replicas, self.size, self.execution = plan, replicas, size, ""
        self._limits, self._assign = (update.clip_value, update.clip_norm), ASSIGNMENTS[assignment]
        self._gpu, self._packing, self._fused_plan, self._dated = gpu, packing, fused_plan, dated
        self._apart: list[Any] = []  # Learner or DeviceLearner
        self._fused: dict[int, DeviceLearner] = {}  # by how many they are

    @property
    def working(self) -> Sequence[Any]:
        """Those that compute; fused ones are one."""
        count = self.replicas.count
        return [self._fused[count]] if self.execution == FUSED else self._apart[:count]

    def tasks(self, slots: Sequence[Slot]) -> list[Task]:
        """What threads are to do: one slot each."""
        if self.execution == FUSED:
            return [partial(self._fused[len(slots)].compute, *slots)]
        return self._assign(self._apart, slots)

    def change(self, count: int, execution: str, statistics: Array | None = None) -> None:
        """`count` learners that run so. New replicas have `statistics`. Raises MemoryError.

        What is under way on a GPU goes on: events order the rest.
        """
        self.bind(count, execution)
        self.execution = execution
        if count != self.replicas.count:
            self.replicas.resize(count, statistics)
        if self._gpu is not None:
            for learner in self.working:
                learner.dated = self._dated

    def bind(self, count: int, execution: str) -> None:
        """Has `count` learners; those that were bound once stay bound, so a change is cheap. Raises MemoryError."""
        if execution != FUSED:
            while len(self._apart) < count:
                self._apart.append(self._learner(len(self._apart)))
        elif count not in self._fused:
            self._fused[count] = self._fuse(count)

    def bind_within(self, room: Callable[[], int], count: int, execution: str) -> str | None:
        """As `bind`, in the bytes that `room` says may be taken: why they can't be had, None where they are bound.

        All ranks call it alike: on a GPU they are asked together for room.
        """
        tried = execution != self.execution
        if lack := self._lack(room, count, tried and execution == FUSED):
            return lack
        try:
            self.bind(count, execution)
        except MemoryError as error:  # a GPU's is a DeviceError as well
            return str(error)
        except DeviceError as error:  # no kernel of cuDNN for such a shape
            if not tried:
                raise
            return str(error)
        return None

    def _lack(self, room: Callable[[], int], count: int, fused: bool) -> str:
        """What memory is missing, '' where none is: a host grants more than it has, while a GPU refuses itself."""
        if self._gpu is None:
            need = max(count - len(self._apart), 0) * self.size
            if need == 0 or need <= (free := room()):
                return ""
            return f"what is new takes {in_words(need)}, {in_words(free)} of those free may be taken"
        if not fused:
            return ""
        free = room()
        need = 0 if count in self._fused else fused_bytes(self._fused_plan(count))
        if need <= free:
            return ""
        where = self._gpu.machine.found.gpu
        return f"fused learners take {in_words(need)}, {in_words(free)} of those free on {where} may be taken"

    def _learner(self, i: int) -> AnyLearner:
        _, gradient, statistics = row = self.replicas.row(i)
        if self._gpu is None:
            return Learner(self.plan.bind(*row), gradient, *self._limits)
        inputs, gpu = self._inputs(), self._gpu
        bound, before = gpu.bound(self.plan, *row, inputs.arrays)
        inputs.bound(bound.inputs)
        runs = [*before, *bound.runs, *gpu.behind(i, bound, gradient, *self._limits)]
        return DeviceLearner(f"learner {i}", runs, [inputs], [statistics], gpu)

    def _fuse(self, count: int) -> DeviceLearner:
        """The same gradients as those on streams, to rounding: rows of replicas are joined before, and parted behind.

        Raises MemoryError, and ShapeError where an operator has no such form.
        """
        plan, inputs = self._fused_plan(count), [self._inputs() for _ in range(count)]
        arrays = {f"{name}{MARK}{r}": array for r, own in enumerate(inputs) for name, array in own.arrays.items()}
        bound, (before, behind) = self._gpu.fuse(plan, self.plan, self.replicas, count, self._limits, arrays)
        for r, own in enumerate(inputs):
            own.bound(bound.inputs, f"{MARK}{r}")
        statistics = [self.replicas.row(r)[2] for r in range(count)]
        return DeviceLearner("learners", [*before, *bound.runs, *behind], inputs, statistics, self._gpu)

    def _inputs(self) -> Inputs:
        """A learner's own, packed as its slots are."""
        return Inputs(self._packing, self._gpu.machine.zeros(self._packing.size, "uint8", "inputs of learners"))

    def events(self) -> list[Event]:
        """When the last gradients are there, on a GPU."""
        return [learner.done for learner in self.working if learner.done is not None]

    def synchronise(self) -> None:
        """Waits until nothing is under way on a GPU any more."""
        for learner in (*self._apart, *self._fused.values()):
            learner.stream.synchronise()
