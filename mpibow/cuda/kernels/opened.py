"""A rank's GPU and its libraries and kernels: opened once, before the first plan."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpibow.comm import Communicator
from mpibow.cuda.device.array import PlanArray, PlanArrays
from mpibow.cuda.device.cupy_driver import Stream
from mpibow.cuda.device.driver import DeviceProperties
from mpibow.cuda.device.machine import Machine
from mpibow.errors import DeviceError, install
from mpibow.graph import Array, Plan
from mpibow.graph.bound import BoundPlan
from mpibow.kernels import cache_folder, chunks_of
from mpibow.learn.replica import Replicas

from .cudnn import Cudnn, DeviceTimer, Enqueue, Handles
from .elementwise import cast, fill
from .flat import CHUNK, bound_norms, join_rows, part_rows, report_batch
from .fused import blocks_of
from .graphs import load_cudnn
from .kept import Folder
from .kernels import Constant, Launches
from .launcher import Bind, Executor, Launcher, Range
from .operands import PRECISIONS, Precision
from .passes import DeviceFlat
from .plans import Planner, Target
from .precision import LossScale, Shadows

# By a config's precision, where cuDNN has another name for it.
NAMES: Mapping[str, str] = {"auto": "tf32", "float32": "fp32"}
TRIES = 12  # plans of cuDNN that are timed, of those that it ranks first and need not compile


@dataclass
class Gpu:
    """`cudnn` binds cuDNN's graphs, `bind` launches of own kernels; `flat` are the passes of this rank."""

    machine: Machine
    bind: Bind
    cudnn: Cudnn
    shadows: Shadows
    precision: Precision
    graphs: bool = True
    about: str = ""
    ranges: Range = nullcontext
    flat: DeviceFlat = field(init=False)
    scale: LossScale = field(init=False)

    def __post_init__(self) -> None:
        if self.precision.io == "bfloat16":
            try:
                importlib.import_module("ml_dtypes")  # adds bfloat16 to NumPy
            except ImportError:
                raise DeviceError(f"precision bf16: ml_dtypes is not installed: {install('cuda')}") from None
        self.flat = DeviceFlat(self.machine, self.bind)
        self.scale = LossScale(self.machine, self.precision.name)

    def bound(
        self,
        plan: Plan,
        weights: PlanArray,
        gradients: PlanArray = None,
        statistics: PlanArray = None,
        inputs: PlanArrays | None = None,
    ) -> tuple[BoundPlan, list[Enqueue]]:
        """As `plan.bind`, and its runs, which on a GPU take a stream. In front of them is the start of a pass: weights
        in 16 bits, and the loss's gradient times the scale."""
        launches = Launches()
        if self.precision.io != "float32":  # weights are copied for every pass, before layers ask where it is
            copy: PlanArray = self.shadows.whole(weights)
            if copy is None:
                copy = self.machine.zeros(weights.size, self.precision.io, "weights in 16 bits")
                self.shadows.add(weights, copy)
            launches.append(cast(weights, copy))
        bound = plan.bind(weights, gradients, statistics, inputs)
        if self.scale.record is not None:
            scale = self.scale.record.view("float32")[:1]
            parts = bound.plan.program.values
            launches += [fill(array, parts[name].constant or 0.0, scale) for name, array in bound.constants.items()]
        runs: Any = bound.runs
        return bound, [self.bind(launches), *runs] if launches else [*runs]

    def behind(
        self,
        number: int,
        bound: BoundPlan,
        gradient: PlanArray,
        clip_value: float | None,
        clip_norm: float | None,
        learners: int = 1,
    ) -> Enqueue:
        """The end of a learner's pass: the scale is removed, the gradient limited and the pass reported.

        With several `learners` in the plan, its losses and hits are every `learners`-th of the plan's.
        """
        launches = Launches()
        if self.scale.record is not None:
            launches.append(cast(gradient, gradient, self.scale.record.view("float32")[1:2]))
        norm = self.flat.norms[number : number + 1]
        outputs: PlanArrays = bound.outputs
        parts = self.machine.zeros(len(chunks_of(gradient.size, CHUNK)), "float64", "learners' norms")
        launches += bound_norms(gradient, norm, clip_value, clip_norm, parts)
        loss, report = outputs["loss"], self.flat.reports[number]
        hits = outputs.get("accuracy")
        first = number % learners
        count = loss.size // learners
        hits = None if hits is None else hits[first:]
        launches.append(report_batch(loss[first:], hits, norm, report, count, learners))
        return self.bind(launches)

    def fuse(
        self,
        plan: Plan,
        own: Plan,
        replicas: Replicas,
        k: int,
        limits: tuple[float | None, float | None],
        inputs: PlanArrays,
    ) -> tuple[BoundPlan, list[Enqueue]]:
        """The plan of k learners bound to arrays of its own, and all runs of a pass."""
        zeros = self.machine.zeros
        weights: PlanArray = zeros(plan.layout.size, "float32", "weights of fused learners")
        gradients: PlanArray = zeros(plan.layout.size, "float32", "gradients of fused learners")
        statistics: PlanArray = zeros(plan.statistics.size, "float32", "statistics of fused learners")
        bound, runs = self.bound(plan, weights, gradients, statistics, inputs)
        blocks = Constant(blocks_of(own.layout, plan.layout, k))
        rows: Sequence[PlanArray] = replicas.all_rows(k)
        before = [join_rows(rows[0], weights, blocks)]
        behind = [part_rows(gradients, rows[1], blocks)]
        if plan.statistics.size:
            kept = Constant(blocks_of(own.statistics, plan.statistics, k))
            before.append(join_rows(rows[2], statistics, kept))
            behind.append(part_rows(statistics, rows[2], kept))
        ends = [self.behind(r, bound, rows[1][r], *limits, learners=k) for r in range(k)]
        return bound, [self.bind(before), *runs, self.bind(behind), *ends]

    def executor(self, name: str, runs: Sequence[Enqueue], stream: Stream) -> Executor:
        return Executor(name, runs, stream, graphs=self.graphs, ranges=self.ranges)

    def evaluation(
        self, plan: Plan, weights: PlanArray, statistics: PlanArray
    ) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
        """One batch through an evaluation plan, from the host to the host. Waits."""
        machine = self.machine
        bound, runs = self.bound(plan, weights, statistics=statistics)
        executor = self.executor("evaluate", runs, machine.stream)
        executor.prepare()

        inputs: PlanArrays = bound.inputs

        def compute(slot: Mapping[str, Array]) -> Mapping[str, Array]:
            for name, array in inputs.items():
                machine.put(array, slot[name])
            executor.run()
            outputs: PlanArrays = bound.outputs
            return {name: widened(machine.host(array)) for name, array in outputs.items()}

        return compute

    def free(self, comm: Communicator) -> int:
        """A rank's share of the GPU's free bytes. Collective."""
        everyone = comm.share((self.machine.found.gpu.uuid, self.machine.driver.memory()[0]))
        own = [free for uuid, free in everyone if uuid == self.machine.found.gpu.uuid]
        return int(min(own)) // len(own)


def open_gpu(machine: Machine, precision: str, *, graphs: bool, ranges: Range) -> Gpu:
    """CUDA's own parts, of a GPU that is opened. Raises DeviceError where cuDNN is missing or does not start."""
    chosen = PRECISIONS[NAMES.get(precision, precision)]
    shadows = Shadows()
    handles = Handles()
    library, found = load_cudnn(), machine.found.gpu
    folder = cache_folder()
    kept = plan_folder(folder, found, TRIES)
    target = Target(kept.about[0], handles.of(machine.stream))
    timer = DeviceTimer(machine.driver, machine.driver.stream(), handles.of)  # the averaging stream may be in use
    cudnn = Cudnn(Planner(target, TRIES, kept, timer), handles, shadows.address)
    about = f"{found}, cuDNN {library.backend_version_string()}, {chosen.name}"
    return Gpu(machine, Launcher(machine, folder / "kernels"), cudnn, shadows, chosen, graphs, about, ranges)


def plan_folder(folder: Path, gpu: DeviceProperties, tries: int) -> Folder:
    """The folder of plans for a kind of GPU, both parts of cuDNN and so many tries; the kind is named first."""
    cudnn = load_cudnn()
    versions = cudnn.backend_version_string(), f"frontend {cudnn.__version__}"
    return Folder(folder / "plans", (f"{gpu.name} {gpu.computes}", *versions, f"tries={tries}"))


def widened(array: Array) -> Array:
    """Numbers of 16 bits as float32."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array
