"""The cores that are near a GPU, and which of them a rank takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

NVIDIA, DISPLAY = "0x10de", "0x03"  # a PCI device's vendor, and how the class of its kind begins


def has_gpu(root: Path = Path("/")) -> bool:
    """Whether this machine has a GPU of NVIDIA's, usable or not."""
    devices = root.glob("sys/bus/pci/devices/*")
    return any(root.glob("dev/nvidia[0-9]*")) or any(
        _text(each / "vendor") == NVIDIA and _text(each / "class").startswith(DISPLAY) for each in devices
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""


def parse_cores(text: str) -> list[int]:
    """The kernel's list of cores: "0-3,8,10-11" is 0, 1, 2, 3, 8, 10, 11; [] for any other text."""
    cores: list[int] = []
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
