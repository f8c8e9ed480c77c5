"""The GPU that a rank of a run computes on, opened as the run's settings ask."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mpibow.comm.communicator import Communicator
from mpibow.config import Config
from mpibow.cuda.device.driver import OutOfMemory
from mpibow.cuda.device.find import find_device
from mpibow.cuda.device.near import has_gpu
from mpibow.cuda.kernels.flat import MOST
from mpibow.cuda.learner import FUSED, STREAMS
from mpibow.errors import CommunicationError, ConfigError, DeviceError, install
from mpibow.optim.muon import Muon

if TYPE_CHECKING:
    from mpibow.cuda.kernels.opened import Gpu

ON_GPUS = ("float32", "tf32", "bf16", "fp16")  # precisions

EXECUTIONS = {  # the log's words for each
    STREAMS: "each learner on a stream of its own",
    FUSED: "all learners of a rank in the same kernels",
}

FindGpu = Callable[[Config, Communicator], "tuple[Gpu | None, str]"]


def find_gpu(config: Config, comm: Communicator) -> tuple[Gpu | None, str]:
    """This rank's GPU, opened; or None where `device` is auto and a rank has none, and why. Collective.

    Raises DeviceError where it is cuda.
    """
    if isinstance(config.update, Muon) and config.device == "cuda":
        raise ConfigError("update.name: muon computes on CPUs only, got device cuda; set device to onednn")
    if (alone := config.averaging.hosts_only) and config.device == "cuda":
        raise ConfigError(f"{alone} computes on CPUs only, got device cuda; set device to onednn")
    if (kept := max(len(each.states) for each in config.update.optimisers)) > MOST and config.device == "cuda":
        raise ConfigError(f"update: a GPU takes steps of at most {MOST} states, got {kept}; set device to onednn")
    problem = "update.name is muon, which computes on CPUs only" if isinstance(config.update, Muon) else ""
    problem = problem or (f"{alone} computes on CPUs only" if alone else "")
    problem = problem or (f"update keeps {kept} states, a GPU takes at most {MOST}" if kept > MOST else "")
    try:
        if config.device == "auto":
            if problem:
                return None, problem
            _refuse_together(comm, _missing())
        return _open(config, comm), ""
    except DeviceError as error:  # on all ranks alike
        if config.device == "cuda":
            raise
        return None, str(error).replace("device cuda: ", "")


def _missing() -> str:
    """Why no GPU can be opened here, '' where one may be. It is cheap: CuPy is not imported."""
    if find_spec("cupy") is None:
        return f"CuPy is not installed: {install('cuda')}"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is installed"
    return ""


def _open(config: Config, comm: Communicator) -> Gpu:
    from mpibow.cuda.device.cupy_driver import CupyDriver, nvtx_range
    from mpibow.cuda.device.machine import Machine
    from mpibow.cuda.kernels.opened import open_gpu

    gpu, problem = None, ""
    try:
        driver = CupyDriver()
    except DeviceError as error:
        problem = str(error)
    _refuse_together(comm, problem)
    allowed = sorted(os.sched_getaffinity(0))
    found = find_device(driver, comm, host=socket.gethostname(), allowed=allowed, share_gpu=config.share_gpu)
    os.sched_setaffinity(0, found.cores)  # those near the GPU; threads that start from here on inherit them
    try:
        gpu = open_gpu(Machine(driver, found), config.precision, graphs=config.graphs)
        gpu.ranges = nvtx_range
    except (DeviceError, OutOfMemory) as error:
        problem = str(error)
    _refuse_together(comm, problem)
    assert gpu is not None
    return gpu


def _refuse_together(comm: Communicator, problem: str) -> None:
    """All ranks raise the DeviceError of the first that has a `problem`. Collective."""
    for rank, text in enumerate(comm.share(problem)):
        if text:
            raise DeviceError(text if comm.size == 1 else f"rank {rank}: {text}")


def execution_of(wanted: str, recorded: str = "") -> str:
    """How a rank's learners run. auto is `recorded`, or streams until it has been measured."""
    return recorded or STREAMS if wanted == "auto" else wanted


def seen() -> dict[str, str]:
    """A rank's GPU and libraries, in words; `problem` is why none can be used, '' where one can."""
    if problem := _missing():
        return {"gpu": f"none: {problem}", **({"problem": f"a GPU is here, but {problem}"} if has_gpu() else {})}
    found = dict[str, str]()
    try:
        from mpibow.cuda.device.cupy_driver import CupyDriver, load_cupy
        from mpibow.cuda.kernels.graphs import load_cudnn

        driver = CupyDriver()
        version = driver.version()
        found["cupy"] = f"{load_cupy().__version__}, the driver supports CUDA {version // 1000}.{version % 1000 // 10}"
        found["gpu"] = "; ".join(str(driver.describe(i)) for i in range(driver.count())) or "none is visible"
        found["cudnn"] = str(load_cudnn().backend_version_string())
        found["nccl"] = _nccl()
    except DeviceError as error:
        found["problem"] = str(error)
    return {"gpu": "none", **found}


def _nccl() -> str:
    from mpibow.cuda.exchange.nccl import load_nccl

    try:
        version = load_nccl().get_version()
    except CommunicationError as error:
        return str(error)
    return f"{version // 10000}.{version % 10000 // 100}.{version % 100}"
