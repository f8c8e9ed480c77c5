"""`train --find-lr`: the range test of a job, its table and its plot."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mpibow.comm.communicator import Communicator
from mpibow.comm.launch import say
from mpibow.errors import ConfigError, install
from mpibow.job import Job
from mpibow.probe.rates import range_test
from mpibow.probe.trial import Run

PLOT = "lr.svg"


def find_rate(job: Job, run: Run, comm: Communicator, ends: str, iterations: int) -> int:
    """Prints the table, writes PLOT where matplotlib is installed, and returns the exit code. Raises ConfigError."""
    if comm.size > 1:
        raise ConfigError(f"--find-lr: runs on one rank, got {comm.size}; start it without mpirun")
    lowest, highest = rates_of(ends)
    found = range_test(job, run, lowest=lowest, highest=highest, iterations=iterations)
    print(found)
    if find_spec("matplotlib") is None:
        say(f"no {PLOT}: matplotlib is not installed: {install('plot')}")
        return 0
    found.plot(PLOT)
    print(Path(PLOT))
    return 0


def rates_of(ends: str) -> tuple[float, float]:
    """FROM and TO of `--find-lr-rates`. Raises ConfigError."""
    first, colon, last = ends.partition(":")
    try:
        lowest, highest = float(first), float(last)
    except ValueError:
        lowest = highest = 0.0
    if not colon or not 0 < lowest < highest < float("inf"):
        raise ConfigError(f"--find-lr-rates: must be two numbers above 0 that rise, as 1e-6:10, got '{ends}'")
    return lowest, highest
