"""Training in processes of their own, to be signalled and killed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import yaml

from mpibow.comm.launch import find_launcher
from mpibow.data import write_records
from mpibow.system.process import state
from tests.launching import LIMIT, OPEN_MPI, ROOT, launcher
from tests.run import tiny


def write_run(folder: Path, **settings) -> Path:
    """Records and a config of a run that trains on them until it is told to stop, in `folder`."""
    for name, data in (("train", tiny.images()), ("test", tiny.images(20, seed=1))):
        write_records(folder / "data" / name, zip(data[0], data[1].tolist(), strict=True), classes=tiny.CLASSES)
    config = {
        "name": "run",
        "model": {"name": "mlp", "hidden": [12]},
        "data": {"train": "data/train", "test": "data/test"},
        "batch_size": 3,
        "device": "numpy",  # starts in half the time
        "learners": 2,
        "update": {"lr": 0.01, "momentum": 0.9},
        "stop": {"epochs": None, "iterations": 10**9},
        "evaluate": {"every": 50},
        "checkpoint": {"every": "1000 iterations"},
        "log": {"every": 1},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({**config, **settings}))
    return path


@contextmanager
def started(
    ranks: int, *arguments: str, cwd: Path, options: Sequence[str] = (), pipesize: int = -1, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """`python arguments...` as `ranks` ranks (1: without a launcher); whatever of it is left at the end is killed.

    `options` are the launcher's, `pipesize` is that of its output, which is read at the end.
    """
    program = [] if ranks == 1 else [str(launcher()), *options, "-n", str(ranks)]
    child = subprocess.Popen(
        [*program, sys.executable, *arguments],
        env={**os.environ, **OPEN_MPI, "PYTHONPATH": str(ROOT), **environment},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        pipesize=pipesize,
    )
    try:
        yield child
    finally:
        with suppress(psutil.NoSuchProcess):
            for process in [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        child.communicate()


@contextmanager
def training(folder: Path, ranks: int, **settings) -> Iterator[subprocess.Popen[str]]:
    """A run of `write_run`'s as `ranks` ranks, past its iteration 20."""
    config = write_run(folder, **settings)
    with started(ranks, "-m", "mpibow.train", str(config), cwd=folder) as child:
        wait_for(child, lambda: reached(folder / "runs/run/metrics.jsonl", 20))
        yield child


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and all that it said; no process of it is left, whose run another one could not continue."""
    family = psutil.Process(child.pid).children(recursive=True)
    said, _ = child.communicate(timeout=LIMIT)
    while any(state(process.pid) for process in family):
        time.sleep(0.01)
    return child.returncode, said


def pids(child: subprocess.Popen[str], ranks: int, program: str = "mpibow.train") -> list[int]:
    """The processes of the ranks, by rank, once all of them are there."""
    found: dict[int, int] = {} if ranks > 1 else {0: child.pid}

    def look() -> bool:
        for process in psutil.Process(child.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                started_as = find_launcher(process.environ())
                if started_as is not None and program in process.cmdline():
                    found[started_as.rank] = process.pid
        return len(found) == ranks

    wait_for(child, look)
    return [found[rank] for rank in range(ranks)]


def wait_for(child: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Until it holds; fails where the process ends before."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert child.poll() is None, child.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.01)


def last_iteration(metrics: Path) -> int:
    """How far a run has come, as far as its metrics say."""
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    whole = [line for line in lines[-2:] if line.endswith("}")]  # the last may be half-written
    return max((json.loads(line)["iteration"] for line in whole), default=-1)


def reached(metrics: Path, iteration: int) -> bool:
    return last_iteration(metrics) >= iteration


def centre(run: Path, iteration: int) -> bytes:
    return (run / f"checkpoints/iteration-{iteration:010d}/centre.safetensors").read_bytes()
