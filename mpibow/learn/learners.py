"""The learners of one rank: each bound once, and run on streams of their own or fused, as many as are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mpibow.data.slots import Slot
from mpibow.errors import DeviceError
from mpibow.graph.graph import Array
from mpibow.graph.plan import Plan
from mpibow.learn.learner import ASSIGNMENTS, Binder, Task
from mpibow.learn.replica import Replicas

STREAMS, FUSED = "streams", "fused"  # executions where learners are enqueued: on streams of their own, or all in one


class Learners:
    """Learner i has row i of `replicas`, and runs `plan`; one that is new takes `size` bytes."""

    def __init__(self, plan: Plan, replicas: Replicas, binder: Binder, assignment: str, size: int) -> None:
        self.plan, self.replicas, self.size, self.execution = plan, replicas, size, ""
        self._binder, self._assign = binder, ASSIGNMENTS[assignment]
        self._apart: list[Any] = []  # Learner, or a device's
        self._fused: dict[int, Any] = {}  # by how many they are

    @property
    def working(self) -> Sequence[Any]:
        """The learners that compute; fused ones are one."""
        count = self.replicas.count
        return [self._fused[count]] if self.execution == FUSED else self._apart[:count]

    def tasks(self, slots: Sequence[Slot]) -> list[Task]:
        """The threads' tasks: one slot each."""
        self._binder.expect(len(slots))
        if self.execution == FUSED:
            return [partial(self._fused[len(slots)].compute, *slots)]
        return self._assign(self._apart, slots)

    def change(self, count: int, execution: str, statistics: Array | None = None) -> None:
        """Changes to `count` learners run by `execution`. New replicas have `statistics`. Raises MemoryError.

        Work under way on a GPU goes on: events order the rest.
        """
        self.bind(count, execution)
        self.execution = execution
        if count != self.replicas.count:
            self.replicas.resize(count, statistics)

    def replan(self, plan: Plan) -> None:
        """The same learners, each bound to `plan` in place of the one before. Raises MemoryError."""
        self.wait()
        self._apart.clear()
        self._fused.clear()
        self.plan = plan
        self.bind(self.replicas.count, self.execution)

    def bind(self, count: int, execution: str) -> None:
        """Has `count` learners; those that were bound once stay bound, so a change is cheap. Raises MemoryError."""
        if execution != FUSED:
            while len(self._apart) < count:
                self._apart.append(self._binder.one(self.plan, len(self._apart)))
        elif count not in self._fused:
            self._fused[count] = self._binder.fused(self.plan, count)

    def bind_within(self, room: Callable[[], int], count: int, execution: str) -> str | None:
        """As `bind`, within the bytes that `room` returns: the reason why that fails, None if they are bound.

        All ranks call it alike: on a GPU `room` is called by all together.
        """
        tried = execution != self.execution
        apart = max(count - len(self._apart), 0) * self.size
        fused = (0 if count in self._fused else count) if tried and execution == FUSED else None
        if lack := self._binder.lack(room, apart, fused):
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

    def wait(self) -> None:
        """Waits until no learner is under way."""
        for learner in (*self._apart, *self._fused.values()):
            learner.wait()
