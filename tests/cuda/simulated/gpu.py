"""A GPU that is made up, whole: its memory is NumPy's, its kernels are the CUDA sources compiled for the host.

Streams run what is enqueued when somebody waits, one piece at a time, of a stream that is drawn by a seed among those
that no event holds back (tests.cuda.device.simulated). So an event that is missing shows as wrong bits, for most seeds.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np

from mpibow.comm import Communicator
from mpibow.cuda.device.array import DeviceArray
from mpibow.cuda.device.driver import OutOfMemory
from mpibow.cuda.device.find import Found
from mpibow.cuda.device.machine import Machine
from mpibow.cuda.gpu import OnGpu
from mpibow.cuda.kernels.cudnn import Enqueue
from mpibow.cuda.kernels.kernels import Launch
from mpibow.cuda.kernels.opened import NAMES, Gpu
from mpibow.cuda.kernels.operands import PRECISIONS
from mpibow.cuda.kernels.precision import Shadows
from mpibow.cuda.kernels.specs import Spec
from mpibow.graph import Array
from mpibow.graph.memory import zeros
from tests.cuda.device.fakes import gpu
from tests.cuda.device.simulated import SimDriver, SimStream
from tests.cuda.kernels import host
from tests.cuda.kernels.in_numpy import WORKSPACE, compute, seen


def numpy_of(array):
    """The memory that a device array stands for; anything else is itself."""
    if not isinstance(array, DeviceArray):
        return array
    offset = array.ptr - array.owner.ptr
    return np.ndarray(array.shape, array.dtype, array.owner.memory, offset, array.strides)


@dataclass
class Block:
    """What the driver gives: bytes that only the simulation may touch."""

    memory: Array

    @property
    def data(self) -> Block:
        return self

    @property
    def ptr(self) -> int:
        return int(self.memory.ctypes.data)

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def __getitem__(self, key: slice) -> DeviceArray:
        return DeviceArray.over(self, np.uint8, self.memory.shape)[key]

    def view(self, dtype) -> DeviceArray:
        return self[:].view(dtype)

    def reshape(self, *shape) -> DeviceArray:
        return self[:].reshape(*shape)


@dataclass
class Stream(SimStream):
    capturing: list[Callable[[], None]] | None = None
    launches: int = 0

    def enqueue(self, work: Callable[[], None]) -> None:
        if self.capturing is None:
            super().enqueue(work)
        else:
            self.capturing.append(work)

    def capture(self, enqueue: Callable[[], None]) -> CudaGraph:
        self.capturing, captured = (works := []), works
        try:
            enqueue()
        finally:
            self.capturing = None
        return CudaGraph(captured)


@dataclass
class CudaGraph:
    works: Sequence[Callable[[], None]]

    def launch(self, stream: Stream) -> None:
        stream.launches += 1
        for work in self.works:
            stream.enqueue(work)


class Simulation(SimDriver):
    """`copies` counts what is copied; `told` are the bytes that it says are free, `room` those that are."""

    def __init__(self, seed: int = 0, told: int = 1 << 30) -> None:
        super().__init__(seed, free=1 << 40, lockable=1 << 40)
        self.copies, self.told, self.room = 0, told, 1 << 40

    def memory(self) -> tuple[int, int]:
        return self.told, 1 << 30

    def allocate(self, size: int):
        if size > self.room:
            raise OutOfMemory("out of memory")
        self.room -= size
        return Block(zeros(size, "uint8"))

    def pinned(self, size: int):
        return zeros(size, "uint8")

    def stream(self, priority: int = 0) -> Stream:
        haste = self.machine.draw.choice([0.01, 0.1, 1.0])
        stream = Stream(self.machine, f"stream {len(self.machine.streams)}", haste)
        stream.pointer = 1 + len(self.machine.streams)
        self.machine.streams.append(stream)
        return stream

    def copy(self, target, source, stream) -> None:
        to, of = numpy_of(target), numpy_of(source)
        assert to.nbytes == of.nbytes, (to.nbytes, of.nbytes)
        assert to.flags.c_contiguous
        assert of.flags.c_contiguous
        self.copies += 1
        stream.enqueue(lambda: np.copyto(to.reshape(-1).view(np.uint8), of.reshape(-1).view(np.uint8)))


ALONE = threading.Lock()  # the host's emulation of threads has one state a process, and ranks here are threads


def _run(bound: host.Bound) -> None:
    with ALONE:
        bound()


@dataclass
class Bind:
    """Launches on the host. `names` are those that were bound, for tests to look at."""

    names: list[str] = field(default_factory=list)

    def __call__(self, launches: Sequence[Launch]) -> Enqueue:
        on_host = [host.Bound(replace(one, arguments=tuple(map(numpy_of, one.arguments)))) for one in launches]
        self.names += [one.kernel for one in launches]

        def run(stream) -> None:
            for one in on_host:
                stream.enqueue(lambda one=one: _run(one))

        return run


@dataclass
class Layers:
    """cuDNN's graphs as NumPy computes them: mpibow.cuda.kernels.cudnn.Cudnn on the simulation."""

    shadows: Shadows

    def workspace(self, *specs: Spec | None) -> int:
        return WORKSPACE

    def bind(self, spec: Spec, arrays: Mapping, workspace=None) -> Enqueue:
        assert {o.name for o in spec.operands} == set(arrays), (spec.kind, sorted(arrays))
        assert workspace.nbytes == WORKSPACE
        for operand in spec.operands:  # which checks what the array holds
            self.shadows.address(arrays[operand.name], operand.dtype)
        views = {o.name: seen(numpy_of(self.shadows.of(arrays[o.name], o.dtype)), o) for o in spec.operands}
        return lambda stream: stream.enqueue(lambda: _compute(spec, views))


def _compute(spec: Spec, views: Mapping[str, Array]) -> None:
    """In float32, as sums are in cuDNN; what is written is rounded to 16 bits where that is its type."""
    narrow = {name for name, view in views.items() if view.dtype.itemsize == 2}
    wide = {name: view.astype(np.float32) if name in narrow else view for name, view in views.items()}
    with np.errstate(all="ignore"):
        compute(spec, wide)
        for operand in spec.operands:
            if operand.role == "out" and operand.name in narrow:
                views[operand.name][...] = wide[operand.name]


def simulated(
    seed: int = 0, precision: str = "float32", *, graphs: bool = True, shared: bool = False, scale: float | None = None,
    told: int = 1 << 30,
) -> OnGpu:  # fmt: skip
    """A GPU of its own, opened, with `told` bytes free; `scale` is the loss's first in fp16."""
    driver, shadows = Simulation(seed, told), Shadows()
    machine = Machine(driver, Found(gpu(0), (0,), shared))
    chosen = PRECISIONS[NAMES.get(precision, precision)]
    opened = Gpu(machine, Bind(), Layers(shadows), shadows, chosen, graphs, "a simulation")
    if scale is not None:
        opened.scale.load(np.array([scale, 0]))
    return OnGpu(opened)


@dataclass
class Ring:
    """What NCCL does, made up: calls are work on the stream, and meet those of the other ranks when they run."""

    comm: Communicator  # of its own: others may talk meanwhile
    driver: Simulation
    calls: list[tuple[str, int]] = field(default_factory=list)

    def allreduce(self, address: int, count: int, stream: int) -> None:
        self.calls.append(("all-reduce", count))
        array = np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)
        (on,) = [each for each in self.driver.machine.streams if each.pointer == stream]
        on.enqueue(lambda: self.comm.allreduce(array))

    def broadcast(self, address: int, count: int, root: int, stream: int) -> None:
        raise AssertionError("ranks never differ here")

    def problem(self) -> str:
        return ""

    def abort(self) -> None:
        self.comm.close(1)

    def close(self) -> None:
        pass
