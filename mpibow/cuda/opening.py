"""A rank's GPU and its libraries: opened, or described."""

from __future__ import annotations

import os
import socket

from mpibow.comm.communicator import Communicator
from mpibow.config import Config
from mpibow.cuda.device.cupy_driver import Driver, load_cupy, nvtx_range
from mpibow.cuda.device.driver import OutOfMemory, cuda_version, dotted
from mpibow.cuda.device.find import find_device, refuse_together
from mpibow.cuda.device.machine import Machine
from mpibow.cuda.exchange.nccl import load_nccl
from mpibow.cuda.gpu import OnGpu
from mpibow.cuda.kernels.graphs import load_cudnn
from mpibow.cuda.kernels.opened import open_gpu
from mpibow.errors import CommunicationError, DeviceError


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
    words = dict[str, str]()
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
