"""The results of learners on a GPU, which come to the host an iteration late."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from mpibow.cuda.device.array import PlanArray
from mpibow.cuda.device.cupy_driver import Event
from mpibow.cuda.kernels.opened import Gpu
from mpibow.cuda.times import DeviceTimes, Exchanges
from mpibow.graph import Array
from mpibow.learn.learners import Learners
from mpibow.sync import Engine
from mpibow.sync.outbox import Book, Late, Message, Tally


class DeviceBook(Book):
    """Learners report in device memory; the host reads an iteration's reports when its exchange has ended.

    `wait` waits for an event if ranks may be late.
    """

    enqueues = True

    def __init__(
        self, gpu: Gpu, engine: Engine, learners: Learners, times: DeviceTimes, wait: Callable[[Event], None] | None
    ):
        self._gpu, self._flat, self._machine = gpu, gpu.flat, gpu.machine
        self._engine, self._learners, self._times = engine, learners, times
        self._wait = wait or (lambda event: event.synchronise())
        self.stream = self._machine.stream
        capacity = len(self._flat.reports)
        self._unsent = self._machine.zeros(3, "float64")
        self._reports = self._machine.zeros(self._flat.reports.shape, "float64")
        seen = self._machine.memory.pinned("what learners report", 8 * (3 * capacity + 2))
        self._tail, self._seen = seen[:12].view(np.float32), seen[16:].view(np.float64).reshape(capacity, 3)
        self._event: Event | None = None
        self._entered = 0  # learners of the iteration under way
        self._late = list[Late]()
        self._exchanges = Exchanges(self.stream)

    def attach(self) -> None:
        self._machine.attach()

    def join(self, beside: bool) -> None:
        working = self._learners.working
        gradients = [learner.done for learner in working if learner.done is not None]
        for event in gradients:
            self.stream.wait(event)
        self._exchanges.joined(gradients if beside else ())
        self._times.note(working)

    def begin(self) -> None:
        self._exchanges.begin()

    def seconds(self) -> tuple[float, float]:
        return self._exchanges.seconds()

    def gather(self) -> None:
        self._entered = self._learners.replicas.count
        rows = slice(0, self._entered)
        self._machine.driver.copy(self._reports[rows], self._flat.reports[rows], self.stream)
        if self._gpu.scale.record is not None:
            self._flat.follow_scale(self._flat.norms[rows], self._gpu.scale.record)

    def enter(self, tally: Tally, message: Message | None) -> None:
        there: PlanArray = None if message is None else message.tally
        self._flat.enter_reports(tally.attention, self._reports[: self._entered], self._unsent, there)

    def sent(self, message: Message | None) -> None:
        copy = self._machine.driver.copy
        if message is not None:
            copy(self._tail, message.tally, self.stream)
        copy(self._seen[: self._entered], self._reports[: self._entered], self.stream)
        if self._engine.meter is not None:
            self._engine.meter.see()
        self._event = self._exchanges.end()

    def close(self, message: Message | None) -> Tally | None:
        assert self._event is not None
        self._wait(self._event)
        if self._engine.meter is not None:
            self._engine.meter.seen()
        self._late = [_result(row) for row in self._seen[: self._entered].tolist()]
        return None if message is None else Tally(*self._tail.tolist())

    def late(self) -> list[Late]:
        found, self._late = self._late, []
        return found

    def spoilt(self) -> dict[int, float]:
        return {i: loss for i, (loss, _, finite) in enumerate(self._late) if not finite}

    def scale_is_large(self) -> bool:
        """Whether it may still be halved."""
        state = self._gpu.scale.state()
        return state is not None and state[0] > 1.0

    def state(self) -> dict[str, Array]:
        rows = [[loss, hits, 0.0 if finite else math.nan] for loss, hits, finite in self._late]
        tally = np.concatenate([self._machine.host(self._unsent), np.array(rows, np.float64).reshape(-1)])
        scale = self._gpu.scale.state()
        return {"tally": tally} if scale is None else {"tally": tally, "scale": scale}

    def load(self, tally: Array, scale: Array | None = None) -> None:
        self._machine.put(self._unsent, tally[:3])
        self._late = [_result(row) for row in tally[3:].reshape(-1, 3).tolist()]
        if scale is not None:
            self._gpu.scale.load(scale)


def _result(row: Sequence[float]) -> Late:
    loss, hits, norm = row
    return loss, hits, math.isfinite(norm)
