"""python -m mpibow.doctor: lists the installation and each rank's machine, and finds problems before training."""

import argparse
import os
import platform
import re
import resource
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .comm.binding import allowed_cores
from .comm.cgroups import machine_cores
from .comm.communicator import Communicator, Single
from .comm.launch import find_launcher, guarded, open_communicator
from .comm.library import load, short
from .comm.mpi import Mpi
from .diagnose.machine import MachineFacts, check_all, exit_code, in_bytes
from .errors import CommunicationError, MpibowError
from .system.command import parser_of, with_config
from .system.packages import installed
from .system.streams import as_command
from .tune.words import in_ranks

if TYPE_CHECKING:
    from .config import Config

SUMS = {"1 KB": 2**10, "64 KB": 2**16, "1 MB": 2**20, "16 MB": 2**24}  # bytes of all-reduces that are timed
OPTIONAL = ("cupy-cuda13x", "cupy-cuda12x", "cupy", "nvidia-dali-cuda130", "nvidia-dali-cuda120", "torch")


def collect(comm: Single | Mpi, options: argparse.Namespace, remedy: str = "") -> MachineFacts:
    """This rank's facts; every rank calls it. `remedy` is why the ranks of a launcher cannot connect."""
    launcher = find_launcher(os.environ)
    library = ""
    threads = "multiple"
    shared = False
    if isinstance(comm, Mpi):
        library = comm.mpi_library
        threads = comm.thread_level
        shared = comm.shared_memory
    else:
        try:
            library = short(load().Get_library_version())
        except CommunicationError as error:
            remedy = remedy or str(error)
    config, learners, problem = _configured(comm, options)
    out = "runs" if config is None else config.out
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    shm_size, _, shm_free = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else (0, 0, 0)
    required = required_packages()
    return MachineFacts(
        rank=comm.rank,
        size=comm.size,
        local_size=comm.local_size,
        host=socket.gethostname(),
        launcher=launcher.name if launcher else "",
        mpi_library=library,
        threads=threads,
        shared=shared,
        sums=times_of_sums(comm),
        remedy=remedy,
        python=tuple(map(int, platform.python_version_tuple()[:2])),
        packages=installed(["mpibow", *required, *OPTIONAL]),
        required=required,
        blas=_blas(),
        allowed=allowed_cores(),
        machine=machine_cores(),
        learners=learners,
        auto=config is not None and config.learners == "auto",
        memlock=None if memlock == resource.RLIM_INFINITY else memlock,
        fabric=any(Path("/sys/class/infiniband").glob("*")),
        shm_size=shm_size,
        shm_free=shm_free,
        out=out,
        out_free=free_bytes(Path(out)),
        config=options.config or "",
        problem=problem,
        gpus=_gpus(),
        **kernels_told(config, options.library),
    )


def times_of_sums(comm: Communicator) -> str:
    """How long all-reduces of SUMS take on rank 0, as text; "" where it is alone."""
    if comm.size == 1:
        return ""
    times = []
    for name, size in SUMS.items():
        array = comm.zeros(size // 4, "float32")
        comm.allreduce(array)  # touches the memory
        begin = time.perf_counter()
        for _ in range(5):  # their mean
            comm.allreduce(array)
        seconds = (time.perf_counter() - begin) / 5
        times.append(f"{name} {seconds * 1e3:.2f} ms ({size / seconds / 1e6:,.0f} MB/s)")
    return comm.share(", ".join(times))[0]


def table(everyone: Sequence[MachineFacts]) -> str:
    """Facts that are equal on all ranks once; facts that differ with their ranks."""
    rows = [describe(facts) for facts in everyone]
    equal = []
    differing = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name, "not installed") for row in rows]
        for value in dict.fromkeys(values):
            ranks = [facts.rank for facts, own in zip(everyone, values, strict=True) if own == value]
            line = f"  {name:<16} {value}"
            if len(ranks) == len(everyone):
                equal.append(line)
            else:
                differing.append(f"{line}  ({in_ranks(ranks)})")
    heading = f"on all {len(everyone)} ranks" if len(everyone) > 1 else "on this machine"
    return "\n".join([heading, *equal, *["different from rank to rank"] * bool(differing), *differing])


def describe(facts: MachineFacts) -> dict[str, str]:
    """Facts as texts for people."""
    return {
        "host": facts.host,
        "python": ".".join(map(str, facts.python)),
        **facts.packages,
        "blas of numpy": facts.blas,
        "kernels": facts.kernels,
        **{name: text for name, text in facts.gpus.items() if name != "problem"},
        "launcher": facts.launcher or "none",
        "mpi": (facts.mpi_library or "none") + (f", threads '{facts.threads}'" if facts.size > 1 else ""),
        **({"sums on CPUs": "in shared memory" if facts.shared else "by messages"} if facts.size > 1 else {}),
        **({"times of sums": facts.sums} if facts.sums else {}),
        "cores": f"{facts.allowed} of {facts.machine}",
        "learners": "not given" if facts.learners is None else "auto, begins with " * facts.auto + str(facts.learners),
        "memlock": in_bytes(facts.memlock),
        "/dev/shm": f"{in_bytes(facts.shm_free)} free of {in_bytes(facts.shm_size)}",
        "out": f"{facts.out}, " + ("not writable" if facts.out_free is None else f"{in_bytes(facts.out_free)} free"),
    }


def report(everyone: Sequence[MachineFacts]) -> int:
    """Prints facts and findings; returns the exit code."""
    findings = check_all(everyone)
    lines = [f"{found.level:<8} {found.about:<9} " + found.text.replace("\n", "\n" + " " * 19) for found in findings]
    print(table(everyone), "", *lines, sep="\n", flush=True)
    return exit_code(findings)


def examine(comm: Single | Mpi, options: argparse.Namespace) -> int:
    """The exit code, the same on all ranks; rank 0 prints."""
    everyone = comm.share(collect(comm, options))
    return report(everyone) if comm.rank == 0 else exit_code(check_all(everyone))


def main(argv: Sequence[str] | None = None) -> NoReturn:
    options = with_config(parser(), argv)
    try:
        comm, _ = open_communicator()
    except CommunicationError as error:
        launcher = find_launcher(os.environ)
        if launcher and launcher.rank:
            time.sleep(5)  # the first rank to exit ends all: let rank 0 print
            sys.exit(1)
        sys.exit(report([collect(Single(), options, remedy=str(error))]))
    guarded(comm, lambda: examine(comm, options))


def parser() -> argparse.ArgumentParser:
    made = parser_of(
        "doctor",
        "Lists what is installed and what each rank sees, and finds what would fail in training. "
        "Start it as you would start training: mpirun -np 8 python -m mpibow.doctor resnet50.yaml",
        "Each finding is a line: ok, warning (training is slow or may fail) or error (it would fail), with "
        "the command that mends it. The exit code is 1 if training would fail, else 0.",
    )
    made.add_argument("config", nargs="?", metavar="CONFIG", help="YAML file of a run, to check with its data")
    made.add_argument("overrides", nargs="*", metavar="key.path=value", help="settings that override the file's")
    made.add_argument(
        "--library", metavar="PATH", help="try this libdnnl.so of oneDNN 3 before you set onednn.library=PATH"
    )
    made.add_argument("--learners", type=int, metavar="K", help="learners per rank, to compare with its cores")
    return made


def _configured(comm: Communicator, options: argparse.Namespace) -> tuple["Config | None", int | None, str]:
    """The settings, this rank's initial number of learners, and the error in the settings or their data, if any."""
    overrides = list(options.overrides)
    if options.learners is not None:
        overrides.append(f"learners={options.learners}")
    config = None
    learners = options.learners
    problem = ""
    for rank in range(min(comm.size, 2)):  # rank 0 first: it converts data that the others read
        comm.barrier()
        if rank != min(comm.rank, 1):
            continue
        try:
            from .config import load, load_mapping
            from .job import BUILT_IN, open_job
            from .run.timelines import first_timeline

            path = options.config
            config = load_mapping(BUILT_IN, overrides) if path is None else load(path, overrides)
            learners = first_timeline(config, comm.size).counts(0)[comm.rank]
            if path is not None:
                open_job(config).training_plan()
        except (MpibowError, ImportError) as error:  # a package that is missing is found below, too
            problem = str(error)
    return config, learners, problem


def kernels_told(config: "Config | None", tried: str | None) -> dict[str, str]:
    """The kernels that the settings choose on the host, and their problem, if any; `tried` is a library to check."""
    device = "auto"
    precision = "float32"
    library = tried
    if config is not None and tried is None:
        device = "auto" if config.device == "cuda" else config.device
        precision = "float64" if config.precision == "float64" else "float32"
        library = config.onednn.library
    try:
        from .kernels import find_kernels

        kernels, hint = find_kernels(device, precision, library)
    except (MpibowError, ImportError) as error:
        return {"kernels": "none", "library": str(error)}
    return {"kernels": kernels.about, "slow": hint}


def _gpus() -> dict[str, str]:
    try:
        from .job.choice import ROOMS
    except ImportError:  # a package that is missing is found elsewhere, too
        return {}
    return {name: text for room in ROOMS.values() for name, text in room().seen().items()}


def required_packages() -> dict[str, str]:
    """Names and least versions from mpibow's own metadata; empty where mpibow runs from its source alone."""
    try:
        lines = metadata.requires("mpibow") or []
    except metadata.PackageNotFoundError:
        return {}
    found = [re.match(r"([\w.-]+)(?:[^;]*>=\s*([\w.]+))?", line) for line in lines if "extra ==" not in line]
    return {match[1]: match[2] or "" for match in found if match}


def _blas() -> str:
    """NumPy's matrix library and its threads."""
    try:
        import numpy as np
        from threadpoolctl import threadpool_info  # type: ignore[import-untyped]
    except ImportError:
        return "unknown"
    np.ones((2, 2)) @ np.ones((2, 2))  # loaded by now
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return ", ".join(f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads" for pool in pools)


def free_bytes(folder: Path) -> int | None:
    """Free bytes on the disk of `folder`, which may not exist yet; None where it cannot be written."""
    at = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(at).free if at.is_dir() and os.access(at, os.W_OK | os.X_OK) else None


if __name__ == "__main__":
    as_command(main)
