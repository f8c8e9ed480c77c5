"""Control groups: the share of its node that a container or a batch system grants this process."""

import math
import os
import socket
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
GROUPS = Path("/proc/self/cgroup")
# By version: the limit, its use, and the part of that use that is pages of files, by their names in memory.stat.
MEMORY = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
    2: ("memory.max", "memory.current", ("active_file", "inactive_file")),
}


def machine_cores() -> int:
    """Cores of this node, or of the control group's set or quota where that has fewer; at least 1."""
    cores = os.cpu_count() or 1
    sets = (_read(at / ("cpuset.cpus" + ".effective" * (version == 2))) for version, at in _folders("cpuset"))
    return max(1, min(cores, *filter(None, map(_listed, sets)), math.floor(cpu_quota() or cores)))


def _listed(cores: str) -> int:
    """How many cores a list such as 0-3,8 has."""
    ends = [part.partition("-") for part in cores.split(",") if part.strip()]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def cpu_quota() -> float | None:
    """Cores' worth of time that the control group and those above it grant; None: no limit."""
    quotas = (
        _quota(*_read(at / "cpu.max").split())
        if version == 2
        else _quota(_read(at / "cpu.cfs_quota_us").strip(), _read(at / "cpu.cfs_period_us").strip())
        for version, at in _folders("cpu")
    )
    return min((quota for quota in quotas if quota is not None), default=None)


def own_group() -> tuple[str, str]:
    """The same for all processes of one control group: their node and the group's path."""
    return socket.gethostname(), _read(GROUPS)


def memory_left() -> int | None:
    """Bytes that the control group and those above it still grant, at least 0; None: no limit.

    Pages of files that were read count as free, as in the node's MemAvailable: they are dropped if memory is short.
    """
    left = []
    for version, at in _folders("memory"):
        limit, used, names = MEMORY[version]
        if (most := _read(at / limit).strip()) not in ("", "max"):
            stat = dict(line.split() for line in _read(at / "memory.stat").splitlines())
            files = sum(int(stat.get(name, 0)) for name in names)
            left.append(max(int(most) - max(int(_read(at / used).strip() or 0) - files, 0), 0))
    return min(left, default=None)


def _folders(controller: str) -> Iterator[tuple[int, Path]]:
    """The version and folder of each group that `controller` may limit: this process's and all above it.

    Inside a container its own group is the root.
    """
    for line in _read(GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            version, top = (1, ROOT / controllers) if controllers else (2, ROOT)
            own = top / path.lstrip("/")
            for at in (own, *(parent for parent in own.parents if parent.is_relative_to(top))):
                yield version, at


def _quota(quota: str = "max", period: str = "100000") -> float | None:
    return None if quota in ("max", "-1", "") else int(quota) / int(period or 100000)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
