"""A job on the device that its config asks for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from mpibow.comm.communicator import Communicator
from mpibow.cuda.device.near import has_gpu
from mpibow.cuda.opening import ON_GPUS, FindGpu, find_gpu
from mpibow.errors import DeviceError, ShapeError
from mpibow.graph.plan import choose_layout
from mpibow.job.job import Job, kernels_of
from mpibow.kernels import gpu_set


def on_device(
    job: Job, comm: Communicator, find: FindGpu = find_gpu, present: Callable[[], bool] = has_gpu
) -> tuple[Job, str]:
    """The job, with this rank's GPU opened where `device` asks for one, and lines for the user. Collective.

    auto takes GPUs where every rank opens one that has all kernels of the net; else the host computes. Where a GPU is
    `present` a line says why, and where the host is slow one names the faster way. Raises DeviceError where the
    settings need a GPU and none can be used.
    """
    config, why, cores = job.config, "precision is float64, which computes on CPUs only", os.sched_getaffinity(0)
    if job.opened is not None:
        return job, ""
    if config.device in ("auto", "cuda") and config.precision != "float64":
        gpu, why = find(config, comm)
        if gpu is not None:
            opened = replace(job, opened=gpu_set(gpu))
            if config.device == "cuda" or not (why := _lacks(opened)):
                return opened, gpu.note
            os.sched_setaffinity(0, cores)  # opening it took those near the GPU
        if config.precision in ON_GPUS[1:]:
            raise DeviceError(f"precision: {config.precision} needs a GPU, and none can be used: {why}")
    elif config.device == "cuda":
        raise DeviceError(f"device: cuda computes in {', '.join(ON_GPUS)}, precision is float64")
    note = kernels_of(config)[1]
    if config.device == "auto" and any(comm.share(present())):
        note = "\n".join(filter(None, (f"device: CPUs compute, the GPU does not: {why}", note)))
    return job, note


def _lacks(job: Job) -> str:
    """Why the net cannot be computed by the kernels of the job's GPU, '' where it can."""
    try:
        job.layout  # noqa: B018  asks the kernels of training, and is kept
        if job.evaluated:
            choose_layout(job.build(job.config.evaluate.batch_size, False), job.kernels, training=False)
    except ShapeError as error:
        return str(error).partition(": set device=")[0]
    return ""
