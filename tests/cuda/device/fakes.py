"""CUDA that is made up: host arrays for device memory, and a list of all that was enqueued, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mpibow.cuda.device.driver import DeviceProperties, OutOfMemory, Refused

Log = list[tuple]


def gpu(index: int, **changes) -> DeviceProperties:
    fields = {
        "name": "NVIDIA H100", "uuid": f"GPU-{index:04x}", "bus": f"0000:{0x10 + index:02x}:00.0",
        "capability": (9, 0), "memory": 80 << 30,
    }  # fmt: skip
    return DeviceProperties(index, **{**fields, **changes})


class HostArray:
    """Bytes of host memory that pass for a device array, as CuPy's do."""

    def __init__(self, array) -> None:
        self.array = array
        self.data = self
        self.ptr = array.ctypes.data
        self.size, self.nbytes, self.dtype, self.flags = array.size, array.nbytes, array.dtype, array.flags
        self.strides = array.strides

    def __getitem__(self, key) -> HostArray:
        return HostArray(self.array[key])


@dataclass
class FakeEvent:
    name: str
    log: Log
    pending: int = 0  # how often it is asked before it has come

    @property
    def done(self) -> bool:
        self.pending -= 1
        return self.pending < 0

    def synchronise(self) -> None:
        self.log.append(("synchronise", self.name))


@dataclass
class FakeGraph:
    """What was captured, and on which stream it is launched."""

    captured: Log
    log: Log

    def launch(self, stream: FakeStream) -> None:
        self.log.append(("launch", stream.name, len(self.captured)))


@dataclass
class FakeStream:
    name: str
    log: Log
    pointer: int = 0
    events: int = 0
    late: int = 0  # of its events: how often each is asked before it has come
    capturing: Log | None = None
    done: bool = True
    milliseconds_of_rounds: list[float] = field(default_factory=list)

    def enqueue(self, *what) -> None:
        (self.log if self.capturing is None else self.capturing).append((*what, self.name))

    def record(self, *, timed: bool = False) -> FakeEvent:
        self.events += 1
        event = FakeEvent(f"{self.name} {self.events}", self.log, self.late)
        self.log.append(("record", event.name, *(["timed"] if timed else [])))
        return event

    def milliseconds(self, begin: FakeEvent, end: FakeEvent) -> float:
        return self.milliseconds_of_rounds.pop(0)

    def wait(self, event: FakeEvent) -> None:
        self.log.append(("wait", self.name, event.name))

    def synchronise(self) -> None:
        self.log.append(("synchronise", self.name))

    def capture(self, enqueue: Callable[[], None]) -> FakeGraph:
        self.capturing = captured = []
        try:
            enqueue()
        finally:
            self.capturing = None
        self.log.append(("captured", self.name, len(captured)))
        return FakeGraph(captured, self.log)


@dataclass
class FakeDriver:
    """`gpus` as this process sees them; `busy` are numbers of those that cannot be opened."""

    gpus: list[DeviceProperties] = field(default_factory=lambda: [gpu(0)])
    driver: int = 13000
    cupy: int = 13020
    busy: tuple[int, ...] = ()
    free: int = 80 << 30
    lockable: int = 1 << 40
    log: Log = field(default_factory=list)
    refusal: str = ""

    def version(self) -> int:
        return self.driver

    def runtime(self) -> int:
        return self.cupy

    def count(self) -> int:
        if self.refusal:
            raise Refused(self.refusal)
        return len(self.gpus)

    def describe(self, index: int) -> DeviceProperties:
        return self.gpus[index]

    def use(self, index: int) -> None:
        if index in self.busy:
            raise Refused("cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable")
        self.log.append(("use", index))

    def memory(self) -> tuple[int, int]:
        return self.free, 80 << 30

    def allocate(self, size: int) -> HostArray:
        if size > self.free:
            raise OutOfMemory("out of memory")
        self.free -= size
        self.log.append(("allocate", size))
        return HostArray(np.zeros(size if size < 1 << 30 else 0, np.uint8)) if size < 1 << 30 else _Large(size)

    def pinned(self, size: int):
        if size > self.lockable:
            raise OutOfMemory("out of memory")
        self.log.append(("pin", size))
        return np.zeros(size, np.uint8)

    def stream(self, priority: int = 0) -> FakeStream:
        return FakeStream("stream", self.log)

    def copy(self, target, source, stream: FakeStream) -> None:
        target, source = (getattr(array, "array", array) for array in (target, source))
        target.reshape(-1).view(np.uint8)[...] = source.reshape(-1).view(np.uint8)
        self.log.append(("copy", target.nbytes, stream.name))


class _Large(HostArray):
    """A block that nobody touches."""

    def __init__(self, size: int) -> None:
        self.nbytes = size
