"""A job on the device that its config asks for."""

from __future__ import annotations

from dataclasses import replace

from mpibow.comm.communicator import Communicator
from mpibow.config import Config
from mpibow.errors import DeviceError
from mpibow.job.gpu import ON_GPUS, FindGpu, find_gpu
from mpibow.job.job import Job, kernels_of
from mpibow.kernels import KernelSet, gpu_set


def on_device(job: Job, comm: Communicator, find: FindGpu = find_gpu) -> tuple[Job, str]:
    """The job with this rank's GPU opened where `device` wants one, and what is to be said. Collective.

    auto takes GPUs where every rank opens one; else the host computes, and what would make it faster is said. Raises
    DeviceError where cuda is asked for by name and cannot be.
    """
    note = ""
    if job.opened is None:
        opened, note = open_kernels(job.config, comm, find)
        if opened is None:
            return job, kernels_of(job.config)[1]
        job = replace(job, opened=opened)
    return job, note


def open_kernels(config: Config, comm: Communicator, find: FindGpu = find_gpu) -> tuple[KernelSet | None, str]:
    """The kernels of this rank's GPU, as `on_device` takes them, and what is to be said; None for the host's."""
    if config.device not in ("auto", "cuda") or config.precision == "float64":
        if config.device == "cuda":
            raise DeviceError(f"device: cuda computes in {', '.join(ON_GPUS)}, precision is float64")
        return None, ""
    gpu, why = find(config, comm)
    if gpu is None:
        if config.precision in ON_GPUS[1:]:
            raise DeviceError(f"precision: {config.precision} needs a GPU, and none can be used: {why}")
        return None, ""
    return gpu_set(gpu), gpu.note
