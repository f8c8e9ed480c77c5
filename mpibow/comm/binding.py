"""The cores that a process may use, and the remedy if its launcher left it too few."""

import os
from collections.abc import Callable

from mpibow.tune import Counts

from .cgroups import machine_cores
from .communicator import Communicator
from .launch import find_launcher


def allowed_cores() -> int:
    """Cores that this process may use: those it is bound to, fewer where the container's quota is lower; at least 1."""
    return min(len(os.sched_getaffinity(0)), machine_cores())


def core_share(ranks: int) -> int:
    """The cores that each of a node's `ranks` may use without sharing them; at least 1."""
    return max(1, min(allowed_cores(), machine_cores() // ranks))


def binding_warning(allowed: int, machine: int, learners: int, ranks: int, launcher: str = "") -> str | None:
    """A warning if `learners` of one rank lack cores, with the remedy; None if they have enough.

    `allowed` are the rank's cores, `machine` the node's, `ranks` those on this node, `launcher` a Launcher's name.
    """
    fitting = max(1, machine // ranks)
    if learners <= allowed:
        if learners * ranks <= machine:
            return None
        remedy = f"use fewer ranks, or learners={fitting}" if learners > fitting else "use fewer ranks"
        return f"{ranks} ranks with {_learners(learners)} each share the node's {machine} cores: {remedy}"
    need = f"this process may use {allowed} of {machine} cores, but has {_learners(learners)}"
    if learners * ranks > machine:
        shared = "mpirun --bind-to none lets it share them all, or " if launcher.startswith("Open MPI") else ""
        return f"{need}: {shared if allowed < machine else ''}use learners={fitting}, or more cores"
    return f"{need}: {_remedy(launcher, ranks, learners)}"


def binding_limit(allowed: int, machine: int, learners: int, ranks: int, launcher: str = "") -> str | None:
    """A message with the remedy if its binding keeps a rank from more than `learners`; None if it does not.

    As `binding_warning`, but for a rank that has as many learners as pay off: its cores are all in use, and the node
    has other cores that are no rank's share.
    """
    share = max(1, machine // ranks)
    if learners < allowed or allowed >= share:
        return None
    return (
        f"{_learners(learners)} on the {allowed} of {machine} cores that it is bound to: binding sets the limit, "
        f"not the model; {_remedy(launcher, ranks, share)}"
    )


def core_warnings(comm: Communicator, counts: Counts) -> list[str]:
    """The warnings of all ranks about their cores and learners, without repeats."""
    own = _of_rank(binding_warning, comm, counts)
    return list(dict.fromkeys(f"warning: {text}" for text in comm.share(own) if text))


def core_limits(comm: Communicator, counts: Counts) -> list[str]:
    """The first rank whose binding keeps it from more than the learners settled on, and the number of such ranks."""
    bound = [(rank, text) for rank, text in enumerate(comm.share(_of_rank(binding_limit, comm, counts))) if text]
    more = f" ({len(bound)} ranks are)" if len(bound) > 1 else ""
    return [f"tuner: rank {rank} has {text}{more}" for rank, text in bound[:1]]


def _of_rank(about: Callable[..., str | None], comm: Communicator, counts: Counts) -> str | None:
    launcher = find_launcher(os.environ)
    name = launcher.name if launcher else ""
    return about(allowed_cores(), machine_cores(), counts[comm.rank], comm.local_size, name)


def _remedy(launcher: str, ranks: int, cores: int) -> str:
    """The remedy that gives a rank `cores` cores."""
    if launcher.startswith("Open MPI"):
        return f"mpirun --bind-to none, or --map-by ppr:{ranks}:node:pe={cores}"
    if launcher.startswith("mpiexec of MPICH"):
        return f"mpiexec -bind-to none, or -bind-to core:{cores}; with Intel MPI -genv I_MPI_PIN 0"
    if launcher.startswith("MVAPICH"):
        return "mpirun -env MV2_ENABLE_AFFINITY 0"
    if "srun" in launcher:
        return f"srun --cpus-per-task={cores}, or --cpu-bind=none"
    return "give it more, with taskset, the container's --cpus, or the batch system's cores per task"


def _learners(count: int) -> str:
    return f"{count} learner{'s' * (count > 1)}"
