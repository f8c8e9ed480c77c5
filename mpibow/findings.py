"""What a rank sees of its machine, and what follows from it for training: pure functions, facts -> findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mpibow.comm.binding import binding_warning

MEGABYTE, GIGABYTE = 10**6, 10**9
SEGMENT = 20 * MEGABYTE  # what MPI may take of /dev/shm for each rank


@dataclass(frozen=True)
class Facts:
    """What one rank sees. Sizes are bytes."""

    rank: int = 0
    size: int = 1
    local_size: int = 1
    host: str = "node"
    launcher: str = ""  # a Launcher's name
    library: str = ""  # of MPI; "" where it cannot be loaded
    threads: str = "multiple"  # MPI's thread level
    remedy: str = ""  # why there is no MPI, and what to install
    python: tuple[int, ...] = (3, 11, 0)
    packages: Mapping[str, str] = field(default_factory=dict)  # installed: their versions
    required: Mapping[str, str] = field(default_factory=dict)  # at least these versions; "" is any
    blas: str = ""
    allowed: int = 1  # cores of this process
    machine: int = 1  # cores of the node
    learners: int | None = None  # of this rank
    memlock: int | None = None  # None: no limit
    fabric: bool = False  # InfiniBand or the like
    shm: tuple[int, int] = (GIGABYTE, GIGABYTE)  # size and free of /dev/shm
    out: str = "runs"
    out_free: int | None = GIGABYTE  # None: it cannot be written
    problems: tuple[str, ...] = ()  # what the config, or the data that it names, is refused for


@dataclass(frozen=True)
class Finding:
    level: Literal["ok", "warning", "error"]
    about: str
    text: str


def check_ranks(facts: Facts) -> Iterator[Finding]:
    if facts.size > 1:
        return Finding("ok", "ranks", f"{facts.size} over {facts.library}")
    if facts.remedy:
        return Finding("warning", "ranks", f"1, and no more can be started: {facts.remedy}")
    return Finding("ok", "ranks", "1; mpirun -np N python -m mpibow.train starts N")


def check_threads(facts: Facts) -> Iterator[Finding]:
    if facts.size > 1 and facts.threads not in ("serialized", "multiple"):
        text = f"MPI allows '{facts.threads}' only: gradients and communication take turns; use an MPI with more"
        return Finding("warning", "threads", text)
    return Finding("ok", "threads", "gradients are computed while ranks communicate")


def check_python(facts: Facts) -> Iterator[Finding]:
    version = ".".join(map(str, facts.python))
    if facts.python < (3, 11):
        return Finding("error", "python", f"must be 3.11 or later, got {version}")
    return Finding("ok", "python", version)


def check_packages(facts: Facts) -> Iterator[Finding]:
    missing = [name for name in facts.required if name not in facts.packages]
    old = [
        f"{name} {facts.packages[name]}"
        for name, least in facts.required.items()
        if name in facts.packages and _numbers(facts.packages[name]) < _numbers(least)
    ]
    wanted = [name for name in (*missing, *(text.split()[0] for text in old)) if name != "mpi4py" or facts.size > 1]
    if wanted:
        remedy = " ".join(f"'{name}>={facts.required[name]}'" if facts.required[name] else name for name in wanted)
        said = [*(f"{name} is not installed" for name in missing), *(f"{text} is too old" for text in old)]
        return Finding("error", "packages", f"{', '.join(said)}: pip install -U {remedy}")
    return Finding("ok", "packages", "all that mpibow needs are installed")


def check_cores(facts: Facts) -> Iterator[Finding]:
    learners = facts.learners or 1
    warning = binding_warning(facts.allowed, facts.machine, learners, facts.local_size, facts.launcher)
    if warning:
        return Finding("warning", "cores", warning)
    return Finding("ok", "cores", f"{facts.allowed} for {learners} learner{'s' if learners > 1 else ''}")


def check_memlock(facts: Facts) -> Iterator[Finding]:
    if facts.fabric and facts.size > 1 and facts.memlock is not None:
        text = f"{in_bytes(facts.memlock)} may be locked, InfiniBand needs more: ulimit -l unlimited, in the batch script too"
        return Finding("warning", "memlock", text)
    return Finding("ok", "memlock", in_bytes(facts.memlock))


def check_shm(facts: Facts) -> Iterator[Finding]:
    size, free = facts.shm
    need = SEGMENT * facts.local_size
    if facts.size > 1 and free < need:
        text = f"/dev/shm has {in_bytes(free)} free of {in_bytes(size)}, {facts.local_size} ranks may need {in_bytes(need)}: "
        return Finding("warning", "memory", text + "docker run --shm-size=1g, or remove what killed jobs left there")
    return Finding("ok", "memory", f"/dev/shm has {in_bytes(free)} free of {in_bytes(size)}")


def check_out(facts: Facts) -> Iterator[Finding]:
    if facts.out_free is None:
        return Finding("error", "disk", f"out: {facts.out} cannot be written: choose another with out=DIR")
    if facts.out_free < 10 * MEGABYTE:
        return Finding("error", "disk", f"out: {facts.out} has {in_bytes(facts.out_free)} free: choose another with out=DIR")
    level: Literal["ok", "warning"] = "ok" if facts.out_free >= GIGABYTE else "warning"
    return Finding(level, "disk", f"out: {facts.out} has {in_bytes(facts.out_free)} free")


# Each looks at one rank.
CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    check_ranks,
    check_threads,
    check_python,
    check_packages,
    check_cores,
    check_memlock,
    check_shm,
    check_out,
)


def check_alike(everyone: Sequence[Facts]) -> Finding:
    """Ranks that compute with other versions get other bits, or do not understand each other."""
    names = sorted({name for facts in everyone for name in facts.packages})
    differing = [name for name in names if len({facts.packages.get(name) for facts in everyone}) > 1]
    differing += ["python"] * (len({facts.python[:2] for facts in everyone}) > 1)
    differing += ["MPI"] * (len({facts.library for facts in everyone}) > 1)
    if differing:
        return Finding("warning", "versions", f"{', '.join(differing)} differ between ranks: use one environment for all")
    return Finding("ok", "versions", "the same on all ranks")


def check_all(everyone: Sequence[Facts]) -> list[Finding]:
    """Every finding about the ranks' facts, each once, with the ranks that it is about where not all."""
    found: dict[Finding, list[int]] = {}
    for check in CHECKS:
        for facts in everyone:
            for finding in check(facts):
                found.setdefault(finding, []).append(facts.rank)
    if len(everyone) > 1:
        found[check_alike(everyone)] = [facts.rank for facts in everyone]
    return [
        finding if len(ranks) == len(everyone) else replace(finding, text=f"{finding.text} ({ranges(ranks)})")
        for finding, ranks in found.items()
    ]


def ranges(ranks: Sequence[int]) -> str:
    """Numbers in words: "rank 3", "ranks 0-3, 5"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"rank{'s' if len(ranks) > 1 else ''} {words}"


def in_bytes(count: int | None) -> str:
    if count is None:
        return "no limit"
    return f"{count / GIGABYTE:.1f} GB" if count >= GIGABYTE else f"{count / MEGABYTE:.1f} MB"


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 0) of "2.0rc1"."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
