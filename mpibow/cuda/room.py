"""The entry of this room, from the table of devices (mpibow.job.choice). Light, where there is no GPU."""

import ctypes
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from mpibow.comm import Communicator
from mpibow.config import Config
from mpibow.errors import ConfigError, DeviceError, install
from mpibow.formulas import Formula, Machine
from mpibow.job.device import Device
from mpibow.optim import Muon

from .device.find import has_gpu, refuse_together
from .kernels.flat import MOST

present = has_gpu
PRECISIONS = ("auto", "float32", "tf32", "bf16", "fp16")


def missing() -> str:
    """Why no GPU can be opened here, '' where one may be. It is cheap: CuPy is not imported."""
    if find_spec("cupy") is None:
        return f"CuPy is not installed: {install('cuda')}"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is installed"
    return ""


def find(config: Config, comm: Communicator, missing: Callable[[], str] = missing) -> tuple[Device | None, str]:
    """As mpibow.job.choice.Room has it."""
    asked, alone = config.device == "cuda", config.averaging.hosts_only
    states = max(len(each.states) for each in config.update.optimisers)
    problems = {
        "update.name: muon computes on CPUs only": isinstance(config.update, Muon),
        f"{alone} computes on CPUs only": alone,
        f"update: a GPU takes steps of at most {MOST} states, got {states}": states > MOST,
        f"precision: a GPU computes in {', '.join(PRECISIONS[1:])}, got {config.precision}": (
            config.precision not in PRECISIONS
        ),
    }
    if problem := next((text for text, holds in problems.items() if holds), ""):
        if asked:
            raise ConfigError(f"device cuda: {problem}; set device to auto")
        return None, problem
    try:
        if not asked:
            refuse_together(comm, missing())
        from .gpu import open_device

        return open_device(config, comm), ""
    except DeviceError as error:  # on all ranks alike
        if asked:
            raise
        return None, str(error).replace("device cuda: ", "")


def seen() -> dict[str, str]:
    """A rank's GPU and libraries, in words; `problem` is why none can be used, '' where one can."""
    if problem := missing():
        return {"gpu": f"none: {problem}", **({"problem": f"a GPU is here, but {problem}"} if has_gpu() else {})}
    from .gpu import described

    return {"gpu": "none", **described()}


def machines(formula: Formula, folder: Path) -> Mapping[str, Machine]:
    """As mpibow.job.choice.Room has it."""
    from mpibow.cuda import machines

    return machines.machines(formula, folder)
