"""A job on the device that its config asks for."""

from __future__ import annotations

from dataclasses import replace

from mpibow.comm.communicator import Communicator
from mpibow.errors import DeviceError
from mpibow.job.gpu import ON_GPUS, FindGpu, find_gpu
from mpibow.job.job import Job, kernels_of
from mpibow.kernels import gpu_set


def on_device(job: Job, comm: Communicator, find: FindGpu = find_gpu) -> tuple[Job, str]:
    """The job, with this rank's GPU opened where `device` asks for one, and lines for the user. Collective.

    auto takes GPUs where every rank opens one; else the host computes, and a line names the faster way. Raises
    DeviceError where the settings need a GPU and none can be used.
    """
    config = job.config
    if job.opened is not None:
        return job, ""
    if config.device in ("auto", "cuda") and config.precision != "float64":
        gpu, why = find(config, comm)
        if gpu is not None:
            return replace(job, opened=gpu_set(gpu)), gpu.note
        if config.precision in ON_GPUS[1:]:
            raise DeviceError(f"precision: {config.precision} needs a GPU, and none can be used: {why}")
    elif config.device == "cuda":
        raise DeviceError(f"device: cuda computes in {', '.join(ON_GPUS)}, precision is float64")
    return job, kernels_of(config)[1]
