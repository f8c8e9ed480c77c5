"""Which GPU a rank takes, by its local rank, one each, with a message for every error; and the cores near it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpibow.comm import Communicator
from mpibow.errors import DeviceError, install

from .cupy_driver import Driver
from .driver import DeviceProperties, OutOfMemory, Refused, cuda_version

OLDEST = (8, 0)  # the lowest compute capability that has cvt.rn.bf16
CPU = "or compute without one: device=onednn"


@dataclass(frozen=True)
class Found:
    """A rank's GPU, the cores near it that are its own, and whether another rank computes on it as well."""

    gpu: DeviceProperties
    cores: tuple[int, ...]
    shared: bool


def find_device(
    driver: Driver,
    comm: Communicator,
    *,
    host: str,
    allowed: Sequence[int],
    share_gpu: bool = False,
    environment: Mapping[str, str] = os.environ,
    system: Path = Path("/sys"),
) -> Found:
    """Takes this rank's GPU and opens it. Collective: every rank calls it, and where one fails all raise.

    `host` names the node, `allowed` are the cores that this process may use. Raises DeviceError.
    """
    problem, gpu = "", None
    try:
        gpu = _open(driver, comm.local_rank, comm.local_size, share_gpu, environment)
    except DeviceError as error:
        problem = str(error)
    near = near_cores(gpu.bus, system) if gpu else []
    everyone = comm.share((problem, host, comm.local_rank, gpu, near))
    _raise_first([text for text, *_ in everyone])
    assert gpu is not None
    users = [rank for rank, (_, _, _, other, _) in enumerate(everyone) if other and other.uuid == gpu.uuid]
    if len(users) > 1 and not share_gpu:
        *others, last = map(str, users)
        raise DeviceError(
            f"ranks {', '.join(others)} and {last} on {host} all compute on {gpu}: start one rank a GPU, let each see "
            "its own (CUDA_VISIBLE_DEVICES, or the batch system's GPUs per task), or set share_gpu=true: they average "
            "by MPI"
        )
    here = sorted((local, cores) for _, name, local, _, cores in everyone if name == host)
    cores = share_of_cores(allowed, [cores for _, cores in here], [local for local, _ in here].index(comm.local_rank))
    return Found(gpu, tuple(cores), shared=len(users) > 1)


def refuse_together(comm: Communicator, problem: str) -> None:
    """All ranks raise the DeviceError of the first that has a `problem`. Collective."""
    _raise_first(comm.share(problem))


def _raise_first(problems: Sequence[str]) -> None:
    for rank, problem in enumerate(problems):
        if problem:
            raise DeviceError(problem if len(problems) == 1 else f"rank {rank}: {problem}")


def _open(
    driver: Driver, local_rank: int, local_size: int, share_gpu: bool, environment: Mapping[str, str]
) -> DeviceProperties:
    version, runtime = driver.version(), driver.runtime()
    if version == 0:
        raise DeviceError(
            f"device cuda: no NVIDIA driver here: install one, in a container start it with --gpus, {CPU}"
        )
    if version // 1000 < runtime // 1000:
        raise DeviceError(
            f"device cuda: the NVIDIA driver supports CUDA up to {cuda_version(version)}, CuPy was built for "
            f"{cuda_version(runtime)}: install a newer driver, or {install(f'cuda{version // 1000}')}"
        )
    try:
        count = driver.count()
    except Refused as error:
        raise DeviceError(f"device cuda: CUDA cannot start: {error}") from None
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if count == 0:
        seen = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is '{visible}')"
        raise DeviceError(f"device cuda: no GPU is visible{seen}: ask the batch system for one, {CPU}")
    if local_size > count > 1 and not share_gpu:
        raise DeviceError(
            f"device cuda: {local_size} ranks on this node and {count} GPUs visible: start {count} ranks a node, "
            "or set share_gpu=true"
        )
    index = local_rank % count  # where one is visible each was given its own, or all the same: UUIDs will show it
    gpu = driver.describe(index)
    if gpu.capability < OLDEST:
        raise DeviceError(
            f"{gpu}: its compute capability is {gpu.computes}, mpibow needs {'{}.{}'.format(*OLDEST)} or more: "
            f"use another GPU, {CPU}"
        )
    if gpu.mode == "prohibited":
        raise DeviceError(f"{gpu}: its compute mode is prohibited: nvidia-smi -i {gpu.uuid} -c DEFAULT, as root")
    try:
        driver.use(index)
    except (Refused, OutOfMemory) as error:
        if gpu.mode == "exclusive":
            raise DeviceError(
                f"{gpu}: its compute mode is exclusive and another process uses it: end that process, or "
                f"nvidia-smi -i {gpu.uuid} -c DEFAULT, as root"
            ) from None
        raise DeviceError(f"{gpu}: cannot be opened: {error}") from None
    return gpu


NVIDIA, DISPLAY = "0x10de", "0x03"  # a PCI device's vendor, and how the class of its kind begins


def has_gpu(root: Path = Path("/")) -> bool:
    """Whether this machine has a GPU of NVIDIA's, usable or not."""
    return any(root.glob("dev/nvidia[0-9]*")) or any(
        _text(each / "vendor") == NVIDIA and _text(each / "class").startswith(DISPLAY)
        for each in root.glob("sys/bus/pci/devices/*")
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""


def parse_cores(text: str) -> list[int]:
    """The kernel's list of cores: "0-3,8,10-11" is 0, 1, 2, 3, 8, 10, 11; [] for any other text."""
    cores = list[int]()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return []
        cores += range(int(first), int(last or first) + 1)
    return sorted(set(cores))


def near_cores(bus: str, root: Path = Path("/sys")) -> list[int]:
    """The cores of the NUMA node that the GPU at the PCI address `bus` hangs on; [] where the system reports none.

    CUDA gives addresses as 0000:3b:00.0, NVML as 00000000:3B:00.0.
    """
    domain, _, rest = bus.lower().partition(":")
    return parse_cores(_text(root / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "local_cpulist"))


def share_of_cores(allowed: Sequence[int], near: Sequence[Sequence[int]], local_rank: int) -> list[int]:
    """The cores that rank `local_rank` of a node takes of those it may use; `near` has every local rank's.

    Ranks whose GPUs are near the same cores divide them evenly, in runs. Where nothing near is allowed, or there are
    fewer cores than ranks, it takes all allowed cores: then binding gains nothing.
    """
    mine = [core for core in allowed if core in set(near[local_rank])]
    beside = [rank for rank, cores in enumerate(near) if list(cores) == list(near[local_rank])]
    if len(mine) < len(beside) or not mine:
        return sorted(allowed)
    number = beside.index(local_rank)
    return mine[number * len(mine) // len(beside) : (number + 1) * len(mine) // len(beside)]
