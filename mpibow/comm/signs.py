"""Signs of life: every rank of a node writes a row of a file in memory, which the watchdogs of the others read."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from mpibow.system.process import state

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

    def __init__(self, job: str, rank: int, folder: Path | None = None) -> None:
        folder = folder or (MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir()))
        self._path, self._rank = folder / f"{PREFIX}{os.getuid()}-{job}", rank
        self._found: dict[int, Sign] = {}
        _sweep(folder)
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        if os.fstat(self._handle).st_uid != os.getuid():
            raise PermissionError(f"{self._path}: belongs to another user")

    def write(self, sign: Sign) -> None:
        """Shows this rank's row to the others."""
        pid, ticks, beats, phase, waiting = astuple(sign)
        row = json.dumps([pid, ticks, beats, phase, waiting[:LONGEST]]).encode()[:ROW]
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
    found: dict[int, Sign] = {}
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
