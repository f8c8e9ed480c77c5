"""The device whose learners compute on the rank's GPU, where threads only enqueue; opened, or described."""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

from mpibow.comm import Communicator
from mpibow.config import Config
from mpibow.data import Feed
from mpibow.data.loading import Loading
from mpibow.data.pipeline_choice import Resources, find_facts
from mpibow.data.readers import Reader
from mpibow.errors import CommunicationError, ConfigError, DeviceError
from mpibow.graph import Array, Plan
from mpibow.job.device import Compute, Device
from mpibow.job.job import Job
from mpibow.job.memory import Memory
from mpibow.kernels import FlatKernels, KernelSet
from mpibow.learn.learners import FUSED, STREAMS, Learners
from mpibow.learn.replica import Replicas
from mpibow.sync import Engine
from mpibow.trace import Trace

from .device.array import PlanArray
from .device.cupy_driver import Driver, load_cupy, nvtx_range
from .device.driver import OutOfMemory, cuda_version, dotted
from .device.find import find_device, refuse_together
from .device.machine import Machine
from .exchange.book import DeviceBook
from .exchange.nccl import load_nccl
from .exchange.transport import open_transport
from .feed.feeder import Feeder
from .feed.togpu import held_by, open_source, packing_of
from .kernels import table
from .kernels.fused import fused_plan, without_form
from .kernels.graphs import load_cudnn
from .kernels.listing import rewrite
from .kernels.opened import Gpu, open_gpu
from .learner import GpuBinder
from .times import DeviceTimes

EXECUTIONS = {  # the log's words for each
    STREAMS: "each learner on a stream of its own",
    FUSED: "all learners of a rank in the same kernels",
}


class GpuMemory(Memory):
    """A GPU's memory, which several ranks may share."""

    def __init__(self, gpu: Gpu):
        self._gpu, self.place = gpu, f"on {gpu.machine.found.gpu}"

    @property
    def peak(self) -> int:  # type: ignore[override]
        return self._gpu.machine.memory.peak

    def free(self, comm: Communicator) -> int:
        return self._gpu.free(comm)

    def facts(self, comm: Communicator) -> Resources:
        return find_facts(comm.local_size, self.free(comm))

    held = staticmethod(held_by)

    def check(self, *_: object) -> None:
        """The driver refuses what does not fit."""


class OnGpu(Device):
    """As mpibow.job.device.Device has it. `carrier` makes the communicator that averages device arrays."""

    enqueues = True
    carrier: Callable[..., Any] = staticmethod(open_transport)

    def __init__(self, gpu: Gpu):
        super().__init__(kernel_set(gpu), GpuMemory(gpu))
        self.gpu, self.name = gpu, gpu.machine.found.gpu.name

    def executions(self, job: Job) -> Mapping[str, str]:
        if job.shorter:
            raise ConfigError(
                f"lengths: {', '.join(map(str, job.shorter))}: a GPU's learners take one length, the last"
            )
        wanted = job.config.execution
        if wanted != "auto":
            return {wanted: EXECUTIONS[wanted]}
        why = without_form(job.build(job.config.batch_size, True))
        return {STREAMS: f"{EXECUTIONS[STREAMS]}: {why}"} if why else EXECUTIONS

    def transport(self, job: Job, comm: Communicator, stack: ExitStack) -> tuple[Communicator, str]:
        """Another communicator where ranks have device arrays to average."""
        if comm.size == 1:
            return comm, ""
        machine = self.gpu.machine
        carrier, note = self.carrier(
            comm, machine.driver, machine.stream, transport=job.config.transport, shared=machine.found.shared
        )
        stack.push(lambda kind, *_: carrier.part(failed=kind is not None))  # after a failure it waits for no peer
        return carrier, note

    def bind(self, job: Job, replicas: Replicas, loading: Loading, ranks: int, trace: Trace) -> GpuBinder:
        gradients: PlanArray = replicas.all_gradients
        self.gpu.flat.learners(gradients)
        self._times = DeviceTimes(self.gpu.machine, trace)

        def fused(k: int) -> Plan:
            """The plan of k fused learners. Raises ShapeError where an operator can't be fused."""
            kernels = job.kernels
            graph = job.build(job.config.batch_size, True)
            trained = replicas.size  # the first elements of the layout; more from an epoch on
            names = [span.name for span in job.layout.spans if span.offset >= trained]
            return fused_plan(graph, kernels, kernels.dtype(job.config.precision), k, names)

        return GpuBinder(
            replicas, job.config.update, self.gpu, packing_of(loading), fused, self._times, dated=ranks > 1
        )

    def bind_evaluation(self, plan: Plan, centre: Array, statistics: Array) -> Compute:
        return self.gpu.evaluation(plan, centre, statistics)

    def book(self, engine: Engine, learners: Learners, comm: Communicator) -> DeviceBook:
        return DeviceBook(self.gpu, engine, learners, self._times, getattr(comm, "wait", None))

    def feed(self, loading: Loading) -> tuple[Reader, Feed]:
        machine = self.gpu.machine
        return open_source(loading, Feeder(machine.driver, machine.found.gpu.index, machine.memory), self.gpu.bind)

    def close(self) -> None:
        self.gpu.machine.stream.synchronise()  # memory may go after it


def kernel_set(gpu: Gpu) -> KernelSet:
    """cuDNN's layers and mpibow's own kernels on an open GPU."""
    return KernelSet(
        name="cuda",
        operators=table.operators(gpu.bind, gpu.cudnn, gpu.precision),
        fuse=rewrite,
        zeros=partial(gpu.machine.zeros, what="arenas and inputs of learners"),
        put=gpu.machine.put,
        widths=table.WIDTHS,
        lacks="device cuda has no kernel for {}: set device=onednn, or device=numpy",
        flat=cast(FlatKernels, gpu.flat),
        precisions=("float32", "tf32", "bf16", "fp16"),
        about=gpu.about,
        auto=gpu.precision.name,
        activations=gpu.precision.io,
        aligned=gpu.flat.chunk,
    )


def open_device(config: Config, comm: Communicator) -> OnGpu:
    """This rank's GPU. Collective: where one rank fails all raise DeviceError."""
    problem = ""
    try:
        driver = Driver()
    except DeviceError as error:
        problem = str(error)
    refuse_together(comm, problem)
    allowed = sorted(os.sched_getaffinity(0))
    found = find_device(driver, comm, host=socket.gethostname(), allowed=allowed, share_gpu=config.share_gpu)
    os.sched_setaffinity(0, found.cores)  # those near the GPU; threads that start from here on inherit them
    try:
        gpu = open_gpu(Machine(driver, found), config.precision, graphs=config.graphs, ranges=nvtx_range)
    except (DeviceError, OutOfMemory) as error:
        problem = str(error)
    refuse_together(comm, problem)
    return OnGpu(gpu)


def described() -> dict[str, str]:
    """A rank's GPUs and their libraries, in words; `problem` is why none can be used."""
    words = {}
    try:
        driver = Driver()
        words["cupy"] = f"{load_cupy().__version__}, the driver supports CUDA {cuda_version(driver.version())}"
        words["gpu"] = "; ".join(str(driver.describe(i)) for i in range(driver.count())) or "none is visible"
        words["cudnn"] = str(load_cudnn().backend_version_string())
        words["nccl"] = dotted(load_nccl().get_version())
    except CommunicationError as error:
        words["nccl"] = str(error)
    except DeviceError as error:
        words["problem"] = str(error)
    return words
