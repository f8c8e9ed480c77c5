"""The pulse of a rank, and the signs of life that it shows the watchdogs of the other ranks on its node.

The pulse is its phase and a count of its progress, beside how long it may stand still. Every rank of a node writes it
as a row of a file in memory.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Literal
from weakref import finalize

from mpibow.bounds import Positive
from mpibow.system.process import state

Limit = Literal["auto"] | Positive | None

LEAST = {"start": 1800.0, "iteration": 300.0, "evaluation": 600.0, "checkpoint": 1800.0}  # seconds, of auto
TIMES = 100  # the mean time from step to step measured so far, of auto


@dataclass(frozen=True)
class Limits:
    """How long a node's ranks may make no progress before they end with exit code 8; a tenth of it brings a warning."""

    start: Annotated[
        Limit,
        "most seconds without progress up to the first iteration, and after the last; auto is 1800; null: no limit",
    ] = "auto"
    iteration: Annotated[
        Limit,
        "most seconds without progress in an iteration; auto is 300, or 100 times the measured mean; null: no limit",
    ] = "auto"
    evaluation: Annotated[
        Limit,
        "most seconds for one batch of an evaluation; auto is 600, or 100 times the measured mean; null: no limit",
    ] = "auto"
    checkpoint: Annotated[
        Limit, "most seconds for one file of a checkpoint; auto is 1800, or 100 times the measured mean; null: no limit"
    ] = "auto"

    def seconds(self, phase: str, mean: float) -> float:
        """The limit of `phase`, whose steps have taken `mean` seconds so far; infinite if it has none."""
        limit: float | str | None = getattr(self, phase, None)
        if limit == "auto":
            return max(LEAST[phase], TIMES * mean)
        return math.inf if limit is None else float(limit)


class Pulse:
    """Written by working threads without a lock, as only its changes count. Without a watchdog it does nothing."""

    def __init__(self, limits: Limits | None = None):
        self.limits = limits or Limits()
        self.phase = "start"  # of LEAST, or "" if nothing is watched
        self.beats = 0
        self.waiting = ""  # for the other ranks, in this call
        self.folder: Path | None = None  # the run's
        self.ranks: tuple[int, int] | None = None  # of the job and of this node, once they are known
        self.show: Callable[[], object] = lambda: None  # to the watchdogs of the other ranks, at once
        self.stop: Callable[[], None] = lambda: None  # ends the watchdog, if any

    def beat(self, phase: str = "") -> None:
        """Counts a step of progress; `phase` is the next phase, if it changes."""
        self.beats += 1
        if phase and phase != self.phase:
            self.phase = phase
            self.show()

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """The phase inside is `phase`."""
        before = self.phase
        self.beat(phase)
        try:
            yield
        finally:
            self.beat(before)


PREFIX = "mpibow-signs-"
ROW, LONGEST = 512, 100  # bytes of a row, characters of a call in it
MEMORY = Path("/dev/shm")
JOBS = (("PMIX_NAMESPACE",), ("SLURM_JOB_ID", "SLURM_STEP_ID"))  # a job's name, the same for all of its processes


@dataclass(frozen=True)
class Sign:
    """A rank's row: its process, its watchdog's ticks, and its pulse."""

    pid: int
    ticks: int
    beats: int
    phase: str
    waiting: str


class Signs:
    """A file for the ranks of `job` on this node; the first to come makes it, so it works before MPI has started.

    Raises OSError, also where the file is a link or another user's, who has guessed its name.
    """

    def __init__(self, job: str, rank: int, folder: Path | None = None):
        folder = folder or (MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir()))
        self._path = folder / f"{PREFIX}{os.getuid()}-{job}"
        self._rank = rank
        self._found = dict[int, Sign]()
        _sweep(folder)
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        finalize(self, os.close, self._handle).atexit = False  # a watchdog may still write
        if os.fstat(self._handle).st_uid != os.getuid():
            raise PermissionError(f"{self._path}: belongs to another user")

    def write(self, sign: Sign) -> None:
        """Shows this rank's row to the others."""
        *others, waiting = astuple(sign)
        row = json.dumps([*others, waiting[:LONGEST]]).encode()[:ROW]
        os.pwrite(self._handle, row.ljust(ROW), self._rank * ROW)

    def read(self) -> Mapping[int, Sign]:
        """The ranks that have come to this node, by rank. A row that is just being written is as it was before."""
        for rank, sign in _rows(os.pread(self._handle, os.fstat(self._handle).st_size, 0)).items():
            before = self._found.get(rank)
            if (before is not None and before.pid == sign.pid) or state(sign.pid):  # else it is an earlier job's
                self._found[rank] = sign
        return self._found

    def forget(self) -> None:
        """Removes the file's name: all ranks of the node have it open."""
        with suppress(OSError):
            self._path.unlink()


def job_of(environment: Mapping[str, str]) -> str:
    """A name for this process's job, the same for all of its processes on a node."""
    for names in JOBS:
        if all(name in environment for name in names):
            return "-".join(environment[name].replace("/", "_") for name in names)
    return str(os.getppid())  # a launcher starts all ranks of a node from one process


def _rows(whole: bytes) -> dict[int, Sign]:
    found = {}
    for start in range(0, len(whole), ROW):
        with suppress(ValueError, TypeError):
            if whole[start] == ord("["):
                found[start // ROW] = Sign(*json.loads(whole[start : start + ROW]))
    return found


def _sweep(folder: Path) -> None:
    """Removes the files of this user's jobs that were killed while they started."""
    for path in folder.glob(f"{PREFIX}{os.getuid()}-*"):
        with suppress(OSError):
            rows = _rows(path.read_bytes())
            if rows and not any(state(sign.pid) for sign in rows.values()):
                path.unlink()
