"""Which GPU a rank of a run computes on, opened with all that the run's settings say of it."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mpibow.comm.communicator import Communicator
from mpibow.config import Config
from mpibow.device.cuda import find_device
from mpibow.errors import DeviceError

if TYPE_CHECKING:
    from mpibow.kernels.cuda.opened import Gpu

ON_GPUS = ("float32", "tf32", "bf16", "fp16")  # precisions

FindGpu = Callable[[Config, Communicator], "tuple[Gpu | None, str]"]


def find_gpu(config: Config, comm: Communicator) -> tuple[Gpu | None, str]:
    """This rank's GPU, opened; or None where `device` is auto and a rank has none, and why. Collective.

    Raises DeviceError where it is cuda.
    """
    problem = _missing()
    refusals = [text for text in comm.share(problem) if text]
    if refusals and config.device == "auto":
        return None, refusals[0]
    try:
        return _open(config, comm), ""
    except DeviceError as error:  # on all ranks alike, or on this one alone: they share it below
        if config.device == "cuda":
            raise
        return None, str(error)


def _missing() -> str:
    """Why no GPU can be opened here, '' where it is worth trying: cheap to ask, CuPy is not imported for it."""
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is installed"
    return ""


def _open(config: Config, comm: Communicator) -> Gpu:
    from mpibow.device.cupy_driver import CupyDriver, nvtx_range
    from mpibow.device.machine import Machine
    from mpibow.kernels.cuda.opened import open_gpu

    gpu, problem = None, ""
    try:
        driver = CupyDriver()
    except DeviceError as error:
        problem = str(error)
    refusals = [(rank, text) for rank, text in enumerate(comm.share(problem)) if text]
    if refusals:
        rank, text = refusals[0]
        raise DeviceError(text if comm.size == 1 else f"rank {rank}: {text}")
    allowed = sorted(os.sched_getaffinity(0))
    found = find_device(driver, comm, host=socket.gethostname(), allowed=allowed, share_gpu=config.share_gpu)
    os.sched_setaffinity(0, found.cores)  # those near the GPU; threads that start from here on inherit them
    try:
        gpu = open_gpu(Machine(driver, found), config.precision, graphs=config.graphs)
        gpu.ranges = nvtx_range
    except DeviceError as error:
        problem = str(error)
    refusals = [(rank, text) for rank, text in enumerate(comm.share(problem)) if text]
    if refusals:
        rank, text = refusals[0]
        raise DeviceError(text if comm.size == 1 else f"rank {rank}: {text}")
    assert gpu is not None
    return gpu
