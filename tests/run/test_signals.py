"""What a batch system sends: the first signal saves and ends all ranks with code 75, a second SIGTERM ends at once."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mpibow.comm import Single
from mpibow.data.dataset import Array
from mpibow.errors import EXIT_REQUEUE
from mpibow.run.signals import ASKING, Signals
from mpibow.train import train
from tests.launching import RANKS, needs_mpi
from tests.run import processes, tiny
from tests.run.processes import ended, pids, reached, started, wait_for, write_run


@pytest.fixture(autouse=True)
def _no_nohup() -> Iterator[None]:
    """SIGHUP is as a terminal's child has it, however these tests were started."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


SIGNALS = pytest.mark.parametrize("number", ASKING, ids=lambda number: number.name)


@SIGNALS
def test_the_first_is_remembered(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in ASKING]
    with Signals() as signals:
        assert signals.received == ""
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGUSR1)
        assert signals.received == number.name
    assert [signal.getsignal(each) for each in ASKING] == before


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Signals() as signals:
        signal.raise_signal(signal.SIGHUP)
        assert signals.received == ""


def test_elsewhere_than_on_the_main_thread_nothing_is_caught() -> None:
    before = [signal.getsignal(each) for each in ASKING]
    seen: list[object] = []

    def body() -> None:
        with Signals():
            seen.extend(signal.getsignal(each) for each in ASKING)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == before


class Signalling:
    """Data that sends this process a signal when it is read for the n-th time."""

    def __init__(self, number: signal.Signals, reading: int) -> None:
        self.number, self.reading, self.readings = number, reading, 0

    def __getattr__(self, name: str) -> object:
        return getattr(tiny.TRAIN, name)

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        self.readings += 1
        if self.readings == self.reading:
            os.kill(os.getpid(), self.number)
        tiny.TRAIN.read(samples, images, labels)


@SIGNALS
def test_train_stops_where_it_is(tmp_path: Path, number: signal.Signals) -> None:
    work = tiny.job(tmp_path)
    asked = replace(work, train=Signalling(number, 12))  # type: ignore[arg-type]
    found = train(asked, Single())
    assert found.summary.stopped == number.name
    assert 9 <= found.summary.iterations <= 15
    assert found.summary.checkpoint == str(tmp_path / f"run/checkpoints/iteration-{found.summary.iterations:010d}")
    whole = tiny.run(tiny.job(tmp_path / "whole"))
    assert tiny.same_bits(train(work, Single(), resume="auto").weights, whole.weights)


def check_end(folder: Path, code: int, said: str, name: str, rank: str = "") -> None:
    """All ranks stopped at one iteration and saved it; nothing half-written is left."""
    assert code == EXIT_REQUEUE, said
    assert "Traceback" not in said
    summary = json.loads((folder / "runs/run/summary.json").read_text())
    assert summary["stopped"] == name
    iteration = summary["iterations"]
    assert f"iteration {iteration}: {name}{rank}" in said.splitlines()
    last = folder / f"runs/run/checkpoints/iteration-{iteration:010d}"
    assert summary["checkpoint"] == str(last.relative_to(folder))
    files = sorted(path.name for path in last.iterdir())
    ranks = [f"rank-{rank}.safetensors" for rank in range(summary["ranks"])]
    assert files == sorted(["centre.safetensors", "checkpoint.json", "common.safetensors", *ranks])
    assert not list(last.parent.glob(".*"))
    assert tiny.events(folder / "runs/run")[-1]["event"] == "end"


@SIGNALS
def test_one_process(tmp_path: Path, number: signal.Signals) -> None:
    config = write_run(tmp_path)
    with started(1, "-m", "mpibow.train", str(config), cwd=tmp_path) as child:
        wait_for(child, lambda: reached(tmp_path / "runs/run/metrics.jsonl", 20))
        os.kill(child.pid, number)
        check_end(tmp_path, *ended(child), number.name, " on rank 0")


@needs_mpi
@pytest.mark.parametrize(
    ("number", "rank"),
    [(signal.SIGTERM, 0), (signal.SIGUSR1, 1), (signal.SIGUSR2, 1), (signal.SIGHUP, 1), (signal.SIGTERM, RANKS - 1)],
)
def test_any_rank(tmp_path: Path, number: signal.Signals, rank: int) -> None:
    config = write_run(tmp_path)
    with started(RANKS, "-m", "mpibow.train", str(config), cwd=tmp_path) as child:
        wait_for(child, lambda: reached(tmp_path / "runs/run/metrics.jsonl", 20))
        os.kill(pids(child, RANKS)[rank], number)
        check_end(tmp_path, *ended(child), number.name, f" on rank {rank}")


@needs_mpi
def test_all_ranks_at_once_and_again(tmp_path: Path) -> None:
    """As `scancel --signal` does it; USR1 twice is no reason to hurry."""
    config = write_run(tmp_path)
    with started(RANKS, "-m", "mpibow.train", str(config), cwd=tmp_path) as child:
        wait_for(child, lambda: reached(tmp_path / "runs/run/metrics.jsonl", 20))
        for pid in pids(child, RANKS) * 2:
            os.kill(pid, signal.SIGUSR1)
        check_end(tmp_path, *ended(child), "SIGUSR1", " on rank 0")


# With the published rule and a long period the ranks do not talk for long, so that a second signal finds them training.
SILENT = {"rule": {"name": "sma", "gain": "none", "period": 10**6}}


def test_a_second_sigterm_ends_one_process_at_once(tmp_path: Path) -> None:
    config = write_run(tmp_path, **SILENT)
    with started(1, "-m", "mpibow.train", str(config), cwd=tmp_path) as child:
        wait_for(child, lambda: reached(tmp_path / "runs/run/metrics.jsonl", 20))
        os.kill(child.pid, signal.SIGTERM)
        before = processes.last_iteration(tmp_path / "runs/run/metrics.jsonl")
        wait_for(child, lambda: reached(tmp_path / "runs/run/metrics.jsonl", before + 20))  # it is still at it
        os.kill(child.pid, signal.SIGTERM)
        assert ended(child)[0] == -signal.SIGTERM
    assert not (tmp_path / "runs/run/checkpoints").exists()


@needs_mpi
def test_a_second_sigterm_ends_all_ranks_at_once(tmp_path: Path) -> None:
    config = write_run(tmp_path, **SILENT)
    with started(RANKS, "-m", "mpibow.train", str(config), cwd=tmp_path) as child:
        wait_for(child, lambda: reached(tmp_path / "runs/run/metrics.jsonl", 20))
        last = pids(child, RANKS)[-1]
        os.kill(last, signal.SIGTERM)
        before = processes.last_iteration(tmp_path / "runs/run/metrics.jsonl")
        wait_for(child, lambda: reached(tmp_path / "runs/run/metrics.jsonl", before + 20))
        os.kill(last, signal.SIGTERM)
        code, _ = ended(child)
    assert code not in (0, EXIT_REQUEUE)
