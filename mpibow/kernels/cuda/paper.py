"""A GPU on paper: plans are bound to memory that is only counted, and list the kernels that they would launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpibow.device.array import DeviceArray
from mpibow.device.cuda import Found
from mpibow.device.driver import DeviceProperties
from mpibow.device.machine import Machine
from mpibow.graph.plan import Plan
from mpibow.graph.steps import kind_of
from mpibow.kernels.cuda.cudnn import Enqueue
from mpibow.kernels.cuda.flat import CHUNK, SPAN, STEP, DeviceStep, sma_alone
from mpibow.kernels.cuda.kernels import Constant, Launch
from mpibow.kernels.cuda.opened import NAMES, Gpu
from mpibow.kernels.cuda.operands import PRECISIONS, SIZES
from mpibow.kernels.cuda.shadows import Shadows
from mpibow.kernels.cuda.specs import ConvData, ConvForward, ConvWeights, Product, Spec
from mpibow.kernels.passes import chunks_of

UPDATED = {"sma_alone": (0, 1, 2, 3, 4)}  # arrays that a kernel reads and writes, by their places among its arguments
COPIES = "copy_runs"  # its arrays are parts of larger ones: it is counted by its numbers


@dataclass(frozen=True)
class Kernel:
    """One kernel: multiplications and additions of its products, bytes of its operands, each read or written once.

    `launch` is how one of mpibow's own is launched; cuDNN's, one for each of its graphs here, keep that to themselves.
    """

    name: str
    operations: float
    bytes: int
    launch: Launch | None = None


@dataclass(frozen=True)
class Part:
    """A step's launches. `kind` is the name in benchmarks and `mpibow.bench profile`."""

    kind: str
    kernels: Sequence[Kernel]


def of_spec(spec: Spec) -> Kernel:
    """One graph of cuDNN as one kernel."""
    bits = sum(8 * SIZES[o.dtype] * math.prod(o.shape) // (8 if o.dtype == "bool" else 1) for o in spec.operands)
    return Kernel(spec.kind, _products(spec), bits // 8)


def _products(spec: Spec) -> float:
    match spec:
        case ConvForward() | ConvData() | ConvWeights():
            return 2.0 * math.prod(spec.window.y) * math.prod(spec.window.w[1:])
        case Product():
            return 2.0 * spec.batch * spec.m * spec.k * spec.n
    return 0.0


def of_launch(launch: Launch) -> Kernel:
    """One of mpibow's own: all arrays that it takes."""
    name = launch.kernel.partition("<")[0]
    if name == COPIES:
        source, _, runs, length, zeros, *_ = launch.arguments
        unit = 16 if "Pack" in launch.kernel else source.itemsize
        return Kernel(name, 0.0, int(runs) * (2 * int(length) + int(zeros)) * unit, launch)
    arrays = [a.array if isinstance(a, Constant) else a for a in launch.arguments]
    twice = [arrays[place] for place in UPDATED.get(name, ()) if arrays[place] is not None]
    taken = [a for a in (*arrays, *twice) if isinstance(a, DeviceArray) or (isinstance(a, np.ndarray) and a.ndim)]
    return Kernel(name, 0.0, sum(int(array.nbytes) for array in taken), launch)


@dataclass
class _Point:
    """A point in a stream's work that is always reached."""

    done: bool = True

    def synchronise(self) -> None:
        pass


@dataclass
class Stream:
    """The work enqueued since `take`."""

    pointer: int = 0
    done: bool = True
    kernels: list[Kernel] = field(default_factory=list)

    def take(self) -> list[Kernel]:
        taken, self.kernels = self.kernels, []
        return taken

    def record(self, *, timed: bool = False) -> _Point:
        return _Point()

    def wait(self, event: Any) -> None:
        pass

    def synchronise(self) -> None:
        pass


@dataclass(frozen=True)
class _Block:
    """Bytes of device memory: an address and a size."""

    ptr: int
    nbytes: int

    @property
    def data(self) -> _Block:
        return self

    def __getitem__(self, key: slice) -> DeviceArray:
        return DeviceArray.over(self, np.uint8, (self.nbytes,))[key]


class Driver:
    """As mpibow.device.driver.Driver, of a device whose memory never ends and that computes nothing."""

    def __init__(self) -> None:
        self._next = 1 << 20

    def allocate(self, size: int) -> _Block:
        block = _Block(self._next, size)
        self._next += -(-size // 256) * 256
        return block

    def pinned(self, size: int) -> Any:
        return np.zeros(size, np.uint8)

    def stream(self, priority: int = 0) -> Stream:
        return Stream()

    def copy(self, target: Any, source: Any, stream: Stream) -> None:
        pass


class _PaperCudnn:
    """As mpibow.kernels.cuda.cudnn.Cudnn."""

    def workspace(self, *specs: Spec | None) -> int:
        return 0

    def bind(self, spec: Spec, arrays: Mapping[str, Any], workspace: Any = None) -> Enqueue:
        assert {operand.name for operand in spec.operands} == set(arrays), (spec.kind, sorted(arrays))
        return _listing([of_spec(spec)])


def _bind(launches: Sequence[Launch]) -> Enqueue:
    return _listing([of_launch(one) for one in launches])


def _listing(kernels: Sequence[Kernel]) -> Callable[[Any], None]:
    return lambda stream: stream.kernels.extend(kernels)


def paper_gpu(precision: str) -> Gpu:
    """A GPU on paper, opened in a config's precision."""
    driver: Any = Driver()
    machine = Machine(driver, Found(DeviceProperties(0, "paper", "", "", (9, 0), 0), (), False))
    cudnn: Any = _PaperCudnn()
    return Gpu(machine, _bind, cudnn, Shadows(), PRECISIONS[NAMES.get(precision, precision)])


def listed(plan: Plan, gpu: Gpu) -> list[Part]:
    """The launches of one learner's iteration: its pass, its report, and an update that no other rank waits for.

    `gpu` is a `paper_gpu`, and the plan's kernels are of it.
    """
    machine, size, stream = gpu.machine, plan.layout.size, Stream()
    rows = [machine.zeros((1, size), "float32") for _ in range(3)]
    weights, momenta, gradients = rows
    gpu.flat.learners(gradients)
    bound, before = gpu.bound(plan, weights[0], gradients[0])
    parts = [_part("weights in 16 bits", before, stream)] if before else []
    for step, run in zip(plan.program.steps, bound.runs, strict=True):
        parts.append(_part(kind_of(step), [run], stream))
    parts.append(_part("report", gpu.behind(0, bound, gradients[0], None, None), stream))
    sums, record = machine.zeros((len(chunks_of(size, CHUNK)), 2), "float64"), machine.zeros(1, STEP)
    spans = np.array([(plan.layout.decayed, 0), (size, 1)], SPAN)
    local = DeviceStep("", machine.zeros((1, 2, 3), "float32"), Constant(spans))  # SGD with momentum
    update = gpu.bind([sma_alone(weights, (momenta,), gradients, sums, record, local, gpu.flat.norms)])
    return [*parts, _part("update", [update], stream)]


def _part(kind: str, runs: Sequence[Any], stream: Stream) -> Part:
    for run in runs:
        run(stream)
    return Part(kind, stream.take())
