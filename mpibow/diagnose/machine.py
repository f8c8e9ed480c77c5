"""A rank's facts about its machine, and the findings for training: pure functions, facts -> findings."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from mpibow.comm import binding_warning
from mpibow.comm.binding import binding_limit
from mpibow.tune.words import in_ranks

MEGABYTE = 10**6
GIGABYTE = 10**9
SEGMENT = 20 * MEGABYTE  # bytes of /dev/shm that MPI may take for each rank
Level = Literal["ok", "warning", "error"]
Verdict = tuple[Level, str]  # and its text


@dataclass(frozen=True)
class MachineFacts:
    """The facts of one rank; sizes are bytes. The defaults describe a machine without problems."""

    rank: int = 0
    size: int = 1
    local_size: int = 1
    host: str = "node"
    launcher: str = ""  # a Launcher's name
    mpi_library: str = "Open MPI v5.0"  # "" where none can be loaded
    threads: str = "multiple"  # MPI's thread level
    shared: bool = False  # whether all ranks are on one node and share memory
    sums: str = ""  # how long the ranks' sums take
    remedy: str = ""  # why ranks cannot start, and what to do
    python: tuple[int, ...] = (3, 11, 0)
    packages: Mapping[str, str] = field(default_factory=dict)  # installed packages and their versions
    required: Mapping[str, str] = field(default_factory=dict)  # needed packages and least versions; "" is any
    blas: str = "none"
    kernels: str = "oneDNN 3"  # the library that computes
    gpus: Mapping[str, str] = field(default_factory=dict)  # GPUs and their libraries, and their problems
    slow: str = ""  # why that is slow, and what to do
    library: str = ""  # why the library that was asked for can't be used
    allowed: int = 1  # cores of this process
    machine: int = 1  # cores of the node
    learners: int | None = None  # of this rank; None: not given
    auto: bool = False  # learners: auto, which begins with these
    memlock: int | None = None  # None: no limit
    fabric: bool = False  # InfiniBand or the like
    shm_size: int = GIGABYTE  # of /dev/shm
    shm_free: int = GIGABYTE
    out: str = "runs"
    out_free: int | None = GIGABYTE  # None: it cannot be written
    config: str = ""  # the config's file; "" without one
    problem: str = ""  # why training refuses the config, or the data that it names


@dataclass(frozen=True)
class Finding:
    """`error`: training would fail; `warning`: it would be slow or may fail. The text has the remedy to type."""

    level: Level
    about: str
    text: str


def check_ranks(facts: MachineFacts) -> Verdict:
    if facts.size > 1:
        return "ok", f"{facts.size} over {facts.mpi_library}"
    if facts.remedy:
        alone = not facts.launcher
        return "warning" if alone else "error", f"{'1, more cannot start: ' * alone}{facts.remedy}"
    return "ok", "1; mpirun -np N python -m mpibow.train starts N"


def check_threads(facts: MachineFacts) -> Verdict:
    if facts.size > 1 and facts.threads not in ("serialized", "multiple"):
        turns = "so gradients and communication take turns: use an MPI with 'multiple'"
        return "warning", f"MPI allows '{facts.threads}' only, {turns}"
    return "ok", "gradients are computed while ranks communicate"


def check_gpus(facts: MachineFacts) -> Verdict:
    if problem := facts.gpus.get("problem"):
        return "warning", problem
    return "ok", facts.gpus.get("gpu", "none")


def check_packages(facts: MachineFacts) -> Verdict:
    said = []
    wanted = []
    for name, least in facts.required.items():
        if name == "mpi4py" and facts.size == 1:
            continue  # one process does not need it; `ranks` prints this
        if name not in facts.packages:
            said.append(f"{name} is not installed")
        elif _numbers(facts.packages[name]) < _numbers(least):
            said.append(f"{name} {facts.packages[name]} is older than {least}")
        else:
            continue
        wanted.append(f"'{name}>={least}'" if least else name)
    if said:
        return "error", f"{', '.join(said)}: pip install {' '.join(wanted)}"
    return "ok", "all required packages are installed"


def check_kernels(facts: MachineFacts) -> Verdict:
    if facts.library:
        return "error", facts.library
    return ("warning", facts.slow) if facts.slow else ("ok", facts.kernels)


def check_cores(facts: MachineFacts) -> Verdict:
    learners = facts.learners or 1
    warning = binding_warning(facts.allowed, facts.machine, learners, facts.local_size, facts.launcher)
    if warning:
        return "warning", warning
    if facts.auto:
        limit = binding_limit(facts.allowed, facts.machine, facts.allowed, facts.local_size, facts.launcher)
        if limit:
            return "warning", f"learners: auto would end near {limit}"
        return "ok", f"{facts.allowed} cores; learners: auto measures how many pay off"
    return "ok", f"{facts.allowed} for {learners} learner{'s' * (learners > 1)}"


def check_memlock(facts: MachineFacts) -> Verdict:
    if facts.fabric and facts.size > 1 and facts.memlock is not None:
        locked = f"only {in_bytes(facts.memlock)} of memory may be locked"
        return "warning", f"{locked}, InfiniBand needs more: ulimit -l unlimited on every node"
    return "ok", in_bytes(facts.memlock)


def check_shm(facts: MachineFacts) -> Verdict:
    text = f"/dev/shm has {in_bytes(facts.shm_free)} free of {in_bytes(facts.shm_size)}"
    need = SEGMENT * facts.local_size
    if facts.size > 1 and facts.shm_free < need:
        remedy = "remove what killed jobs left there, or docker run --shm-size=1g"
        return "warning", f"{text}, {facts.local_size} ranks may need {in_bytes(need)}: {remedy}"
    return "ok", text


def check_out(facts: MachineFacts) -> Verdict:
    if facts.out_free is None:
        return "error", f"out: {facts.out} cannot be written: choose another with out=DIR"
    text = f"out: {facts.out} has {in_bytes(facts.out_free)} free"
    if facts.out_free < GIGABYTE:
        return "error" if facts.out_free < 10 * MEGABYTE else "warning", f"{text}: choose another with out=DIR"
    return "ok", text


def check_config(facts: MachineFacts) -> Verdict:
    if facts.problem:
        return "error", facts.problem
    return "ok", f"{facts.config} can be trained" if facts.config else "none given"


# What each is about; it checks one rank.
CHECKS: Mapping[str, Callable[[MachineFacts], Verdict]] = {
    "ranks": check_ranks,
    "threads": check_threads,
    "packages": check_packages,
    "gpu": check_gpus,
    "kernels": check_kernels,
    "cores": check_cores,
    "memlock": check_memlock,
    "memory": check_shm,
    "disk": check_out,
    "config": check_config,
}


def check_alike(everyone: Sequence[MachineFacts]) -> Verdict:
    """Ranks with other versions compute other bits, or cannot communicate."""
    names = sorted({name for facts in everyone for name in facts.packages})
    differing = [name for name in names if len({facts.packages.get(name) for facts in everyone}) > 1]
    differing += ["python"] * (len({facts.python for facts in everyone}) > 1)
    differing += ["MPI"] * (len({facts.mpi_library for facts in everyone}) > 1)
    if differing:
        return "warning", f"{', '.join(differing)} differ between ranks: use one environment for all"
    return "ok", "all ranks have the same versions"


def check_all(everyone: Sequence[MachineFacts]) -> list[Finding]:
    """Every finding about the ranks' facts, each once, with its ranks unless it concerns all."""
    found = dict[Finding, list[int]]()
    for about, check in CHECKS.items():
        for facts in everyone:
            level, text = check(facts)
            found.setdefault(Finding(level, about, text), []).append(facts.rank)
    findings = [
        finding if len(ranks) == len(everyone) else replace(finding, text=f"{finding.text} ({in_ranks(ranks)})")
        for finding, ranks in found.items()
    ]
    if len(everyone) > 1:
        level, text = check_alike(everyone)
        findings.append(Finding(level, "alike", text))
    return findings


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where training would fail, else 0."""
    return int(any(finding.level == "error" for finding in findings))


def in_bytes(count: int | None) -> str:
    if count is None:
        return "no limit"
    return f"{count / GIGABYTE:.1f} GB" if count >= GIGABYTE else f"{count / MEGABYTE:.1f} MB"


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 0) of "2.0rc1"."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
