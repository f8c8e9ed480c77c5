"""CUDA that is made up and late: what is enqueued runs when somebody waits, in an order that only events bind.

Device arrays are NumPy arrays. Of the streams whose next work may run one is drawn each time, by a seed, and some are
drawn seldom; so a wait that is missing gives wrong bytes for most seeds.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mpibow.cuda.device.driver import OutOfMemory

Work = Callable[[], None]


class SimEvent:
    def __init__(self, machine: Machine, timed: bool) -> None:
        self._machine, self.timed, self.come, self.at = machine, timed, False, 0.0

    @property
    def done(self) -> bool:
        self._machine.glance()
        return self.come

    def synchronise(self) -> None:
        self._machine.waits.append(threading.current_thread().name)
        self._machine.run_until(lambda: self.come)


@dataclass
class SimStream:
    machine: Machine
    name: str
    haste: float
    pointer: int = 0
    queue: deque[tuple] = field(default_factory=deque)

    def enqueue(self, work: Work) -> None:
        with self.machine.lock:
            self.machine.check_device()
            self.queue.append(("work", work))

    @property
    def done(self) -> bool:
        self.machine.glance()
        return not self.queue

    def record(self, *, timed: bool = False) -> SimEvent:
        event = SimEvent(self.machine, timed)
        with self.machine.lock:
            self.machine.check_device()
            self.queue.append(("record", event))
        return event

    def wait(self, event: SimEvent) -> None:
        with self.machine.lock:
            self.queue.append(("wait", event))

    def synchronise(self) -> None:
        self.machine.waits.append(threading.current_thread().name)
        self.machine.run_until(lambda: not self.queue)

    def milliseconds(self, begin: SimEvent, end: SimEvent) -> float:
        assert begin.timed
        assert end.timed
        assert begin.come
        assert end.come
        return end.at - begin.at


class Machine:
    """All streams of a device. Every piece of work takes a millisecond, and `clock` is the time by now."""

    def __init__(self, seed: int, device: int = 0) -> None:
        self.device, self.streams = device, []
        self.lock = threading.RLock()
        self.clock = 0.0
        self.waits = []  # the threads that waited on the host
        self.used = set()  # threads, and the device that they use
        self.draw = random.Random(seed)

    def check_device(self) -> None:
        """What CUDA asks of a thread that enqueues: that the stream's device is the one it uses."""
        using = dict(self.used).get(threading.get_ident(), 0)
        assert using == self.device, f"{threading.current_thread().name} enqueues on device {self.device}, uses {using}"

    def step(self) -> bool:
        """Runs one piece of work; False if none may run."""
        with self.lock:
            while True:
                ready = [stream for stream in self.streams if stream.queue and _may_run(stream.queue[0])]
                if not ready:
                    return False
                (stream,) = self.draw.choices(ready, [each.haste for each in ready])
                kind, what = stream.queue.popleft()
                if kind == "record":
                    what.come, what.at = True, self.clock
                if kind == "work":
                    what()
                    self.clock += 1
                    return True

    def glance(self) -> None:
        """While it is asked, time goes on, a little."""
        with self.lock:
            if self.draw.random() < 0.1:
                self.step()

    def run_until(self, come: Callable[[], bool]) -> None:
        with self.lock:
            while not come():
                assert self.step() or come(), "what is waited for never comes"

    def finish(self) -> None:
        """Runs all that is enqueued."""
        with self.lock:
            while self.step():
                pass
            assert not any(stream.queue for stream in self.streams), "streams wait for what never comes"


def _may_run(head: tuple) -> bool:
    return head[0] != "wait" or head[1].come


class SimDriver:
    """The seam's methods that feeding needs."""

    def __init__(self, seed: int = 0, device: int = 0, free: int = 1 << 30, lockable: int = 1 << 30) -> None:
        self.machine = Machine(seed, device)
        self.free, self.lockable = free, lockable
        self.copied = 0  # bytes

    def runtime(self) -> int:
        return 13020

    def use(self, index: int) -> None:
        self.machine.used.add((threading.get_ident(), index))

    def memory(self) -> tuple[int, int]:
        return self.free, 1 << 30

    def allocate(self, size: int):
        if size > self.free:
            raise OutOfMemory
        self.free -= size
        return np.zeros(size, np.uint8)

    def pinned(self, size: int):
        if size > self.lockable:
            raise OutOfMemory
        return np.zeros(size, np.uint8)

    def stream(self, priority: int = 0) -> SimStream:
        haste = self.machine.draw.choice([0.01, 0.1, 1.0])
        stream = SimStream(self.machine, f"stream {len(self.machine.streams)}", haste)
        self.machine.streams.append(stream)
        return stream

    def copy(self, target, source, stream: SimStream) -> None:
        """What the source holds is read when the copy runs."""
        assert target.nbytes == source.nbytes, (target.nbytes, source.nbytes)
        self.copied += source.nbytes
        stream.enqueue(lambda: _bytes(target).__setitem__(slice(None), _bytes(source)))


def _bytes(array):
    if isinstance(array, np.ndarray):
        assert array.flags.c_contiguous
        return array.reshape(-1).view(np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * array.nbytes).from_address(array.ptr))
