"""The first signal saves and ends all ranks, with code 75 or, Ctrl-C, 130; another SIGTERM or SIGINT ends at once.

So it does in a script, whose next `fit` must not begin.
"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import mpibow
from mpibow.data import Array
from mpibow.errors import EXIT_INTERRUPTED, EXIT_REQUEUE
from mpibow.run.signals import ASKING, IGNORABLE, ONCE, Signals
from tests.launching import RANKS, needs_mpi
from tests.run import processes, tiny
from tests.run.processes import ended, pids, reached, started, training, wait_for

CODES = {number.name: EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_REQUEUE for number in ASKING}
ENDS = {
    number: KeyboardInterrupt if number == signal.SIGINT else mpibow.Interrupted for number in ASKING
}  # what a script gets
SIGNALS = pytest.mark.parametrize("number", ASKING, ids=lambda number: number.name)


@pytest.fixture(autouse=True)
def at_a_terminal() -> Iterator[None]:
    """No signal is ignored, however these tests were started: by nohup, or in a script's background."""
    handlers = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@SIGNALS
def test_the_first_is_remembered(number: signal.Signals):
    before = [signal.getsignal(each) for each in ASKING]
    with Signals() as signals:
        assert signals.received == ""
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGUSR1)
        assert signals.received == number.name
    assert [signal.getsignal(each) for each in ASKING] == before


def test_what_comes_twice_at_once_is_one_signal_and_later_an_end():
    with Signals() as signals:
        signal.raise_signal(signal.SIGTERM)
        signals._at = math.inf  # less than ONCE ago, however busy the machine is
        signal.raise_signal(signal.SIGTERM)  # else this process ended
        signal.raise_signal(signal.SIGINT)
        signals._at = -math.inf
        signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signals.received == "SIGTERM"


@pytest.mark.parametrize("number", IGNORABLE)
def test_what_is_ignored_stays_ignored(number: signal.Signals):
    signal.signal(number, signal.SIG_IGN)
    with Signals() as signals:
        signal.raise_signal(number)
        assert signals.received == ""
    assert signal.getsignal(number) == signal.SIG_IGN


def test_elsewhere_than_on_the_main_thread_nothing_is_caught():
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
    """Data that sends this process a signal when it is read for the n-th time; never for 0."""

    def __init__(self, number: signal.Signals, reading: int) -> None:
        self.number, self.reading, self.readings = number, reading, 0

    def __getattr__(self, name: str) -> object:
        return getattr(tiny.TRAIN, name)

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        self.readings += 1
        if self.readings == self.reading:
            os.kill(os.getpid(), self.number)
        tiny.TRAIN.read(samples, images, labels)


def test_at_a_prompt_fit_returns_what_is_trained(here: Path, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # as in a notebook's cell
    settings = {"batch_size": 3, "learners": 2, "stop": {"epochs": 2}}
    found = mpibow.fit(tiny.plain, Signalling(signal.SIGINT, 5), **settings)  # type: ignore[arg-type]
    assert (found.summary.stopped, found.summary.interrupted) == ("SIGINT", True)
    assert 0 < found.summary.iterations < 19
    assert found.predict(tiny.images()[0][:2]).shape == (2, 3)
    assert tiny.same_bits(mpibow.load(found.summary.run).weights, found.weights)
    again = mpibow.fit(tiny.plain, Signalling(signal.SIGINT, 0), resume=found.summary.run, **settings)  # type: ignore[arg-type]
    whole = mpibow.fit(tiny.plain, tiny.TRAIN, **settings)
    assert tiny.same_bits(again.weights, whole.weights)


@SIGNALS
def test_fit_saves_and_raises(here: Path, number: signal.Signals):
    settings = {"batch_size": 3, "learners": 2, "stop": {"epochs": 2}}
    before = [signal.getsignal(each) for each in ASKING]
    with pytest.raises(ENDS[number]) as caught:
        mpibow.fit(tiny.plain, Signalling(number, 5), **settings)  # type: ignore[arg-type]
    (folder,) = Path("runs").iterdir()
    assert str(caught.value) == f"the state is saved: continue with fit(..., resume='{folder}')"
    assert [signal.getsignal(each) for each in ASKING] == before
    assert json.loads((folder / "summary.json").read_text())["stopped"] == number.name
    told = f"the state is saved: continue with --resume {folder}, in a program with fit(..., resume='{folder}')\n"
    assert told in (folder / "log.txt").read_text()
    again = mpibow.fit(tiny.plain, Signalling(number, 0), resume=str(folder), **settings)  # type: ignore[arg-type]
    whole = mpibow.fit(tiny.plain, tiny.TRAIN, **settings)
    assert tiny.same_bits(again.weights, whole.weights)


@SIGNALS
def test_a_signal_while_a_run_ends_by_itself_still_ends_the_script(here: Path, number: signal.Signals):
    """In the last evaluation: the run is whole, but the script's next `fit` must not begin."""

    def late(event: object) -> None:
        if isinstance(event, mpibow.Evaluated):
            os.kill(os.getpid(), number)

    with pytest.raises(ENDS[number]):
        mpibow.fit(tiny.plain, tiny.TRAIN, tiny.TEST, batch_size=3, stop={"epochs": 1}, callbacks=[late])
    (folder,) = Path("runs").iterdir()
    assert json.loads((folder / "summary.json").read_text())["stopped"] == "stop.epochs 1"


@SIGNALS
def test_a_trial_ends_with_it(tmp_path, monkeypatch, number: signal.Signals):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(ENDS[number]):
        mpibow.find_lr(tiny.plain, Signalling(number, 5), batch_size=3)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


# Trains twice for ever; a rank that is interrupted says so.
SCRIPT = """
import signal
import mpibow
from tests.run import tiny
before = signal.getsignal(signal.SIGTERM)
for name in ("first", "second"):
    print("begins", name, flush=True)
    try:
        mpibow.fit(
            tiny.plain, tiny.TRAIN, name=name, batch_size=3, learners=2, stop={"epochs": None, "iterations": 10**9},
            log={"every": 1}, out="runs/" + name,
        )
    except mpibow.Interrupted as end:
        print("caught", end.code, signal.getsignal(signal.SIGTERM) == before, flush=True)
        raise
"""


def in_script(folder: Path, ranks: int, number: signal.Signals) -> tuple[int, str]:
    """Exit code and output of SCRIPT, whose last rank is sent a signal while it trains."""
    (folder / "script.py").write_text(SCRIPT)
    with started(ranks, "script.py", cwd=folder) as child:
        wait_for(child, lambda: any(reached(path, 20) for path in folder.glob("runs/first/*/metrics.jsonl")))
        os.kill(pids(child, ranks, "script.py")[-1], number)
        return ended(child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda number: number.name)
def test_a_script_ends_with_75(tmp_path, number: signal.Signals):
    code, said = in_script(tmp_path, 1, number)
    assert code == EXIT_REQUEUE, said
    assert "Traceback" not in said
    assert "the state is saved: continue with --resume runs/first/" in said
    assert [line for line in said.splitlines() if line.split()[0] in ("begins", "caught")] == [
        "begins first", f"caught {EXIT_REQUEUE} True"
    ]  # fmt: skip


@needs_mpi
def test_all_ranks_of_a_script_raise(tmp_path):
    code, said = in_script(tmp_path, RANKS, signal.SIGTERM)
    assert code == EXIT_REQUEUE, said
    assert said.count("begins first") == said.count(f"caught {EXIT_REQUEUE} True") == RANKS
    assert "begins second" not in said
    assert "Traceback" not in said


# Is told to end at iteration 25, and once more, later than ONCE, by every file that it then saves.
TWICE = """
import os, signal, time
import mpibow
from tests.run import tiny
fsync = os.fsync
def again(handle):
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    fsync(handle)
def once(event):
    if isinstance(event, mpibow.Iteration) and event.iteration == 25:
        os.fsync = again
        os.kill(os.getpid(), signal.SIGTERM)
mpibow.fit(
    tiny.plain, tiny.TRAIN, batch_size=3, learners=2, stop={"epochs": None, "iterations": 100}, log={"every": 1},
    checkpoint={"every": "10 iterations"}, callbacks=[once],
)
"""


def test_another_one_while_it_saves_leaves_the_checkpoint_before(tmp_path):
    with started(1, "-c", TWICE, cwd=tmp_path) as child:
        code, said = ended(child)
    assert code == -signal.SIGTERM, said
    (folder,) = (tmp_path / "runs").iterdir()
    whole = [path.parent.name for path in folder.glob("checkpoints/iteration-*/checkpoint.json")]
    assert sorted(whole)[-1] == "iteration-0000000020"
    resumed = mpibow.fit(tiny.plain, tiny.TRAIN, resume=str(folder), batch_size=3, learners=2, stop={"iterations": 30})
    assert resumed.summary.iterations == 30


def test_a_benchmark_ends_with_75_and_leaves_nothing(tmp_path):
    command = ("-m", "mpibow.bench", "train", "logistic", "--device", "numpy", "--seconds", "9999", "log.every=1")
    with started(1, *command, cwd=tmp_path, TMPDIR=str(tmp_path)) as child:
        wait_for(child, lambda: any(reached(path, 20) for path in tmp_path.rglob("metrics.jsonl")))
        child.send_signal(signal.SIGTERM)
        code, said = ended(child)
    assert (code, said.splitlines()[-1]) == (EXIT_REQUEUE, "interrupted"), said
    assert list(tmp_path.iterdir()) == []


def check_end(folder: Path, code: int, said: str, name: str, rank: str = "") -> None:
    """All ranks stopped at one iteration and saved it; nothing half-written is left."""
    assert code == CODES[name], said
    assert "Traceback" not in said
    summary = json.loads((folder / "runs/run/summary.json").read_text())
    assert summary["stopped"] == name
    iteration = summary["iterations"]
    assert f"iteration {iteration}: {name}{rank}" in said.splitlines()
    assert "the state is saved: continue with --resume runs/run, " in said
    last = folder / f"runs/run/checkpoints/iteration-{iteration:010d}"
    assert summary["checkpoint"] == str(last.relative_to(folder))
    files = sorted(path.name for path in last.iterdir())
    ranks = [f"rank-{rank}.safetensors" for rank in range(summary["ranks"])]
    assert files == sorted(["centre.safetensors", "checkpoint.json", "common.safetensors", *ranks])
    assert not list(last.parent.glob(".*"))
    assert tiny.events(folder / "runs/run")[-1]["event"] == "end"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_one_process(tmp_path, number: signal.Signals):
    with training(tmp_path, 1) as child:
        os.kill(child.pid, number)
        check_end(tmp_path, *ended(child), number.name, " on rank 0")


@needs_mpi
@pytest.mark.parametrize(
    ("number", "rank"),
    [
        (signal.SIGTERM, 0),
        (signal.SIGUSR2, 1),
        (signal.SIGHUP, RANKS - 1),
        (signal.SIGINT, 1),
    ],  # SIGUSR1 comes to all, below
)
def test_any_rank(tmp_path, number: signal.Signals, rank):
    with training(tmp_path, RANKS) as child:
        os.kill(pids(child, RANKS)[rank], number)
        check_end(tmp_path, *ended(child), number.name, f" on rank {rank}")


@needs_mpi
def test_ctrl_c_at_mpirun_leaves_what_can_be_resumed(tmp_path):
    """Open MPI's kills its ranks a quarter of a second after SIGTERM, soon enough or not; MPICH's passes SIGINT on."""
    with training(tmp_path, RANKS) as child:
        os.killpg(child.pid, signal.SIGINT)
        assert ended(child)[0] not in (0, None)
    last = processes.last_iteration(tmp_path / "runs/run/metrics.jsonl")
    again = ["run.yaml", "--resume", "auto", f"stop.iterations={last + 20}"]
    with started(RANKS, "-m", "mpibow.train", *again, cwd=tmp_path) as child:
        code, said = ended(child)
    assert code == 0, said


@needs_mpi
def test_all_ranks_at_once_and_again(tmp_path):
    """As `scancel --signal` does it; USR1 twice is no reason to hurry."""
    with training(tmp_path, RANKS) as child:
        for pid in pids(child, RANKS) * 2:
            with suppress(ProcessLookupError):  # they may have ended already
                os.kill(pid, signal.SIGUSR1)
        check_end(tmp_path, *ended(child), "SIGUSR1", " on rank 0")


# Learners that are not averaged do not talk for a long period, so that a second signal finds them training.
SILENT = {"rule": {"name": "independent", "period": 10**6}, "checkpoint": {"every": None}}


def go_on(child: subprocess.Popen[str], pid: int) -> None:
    """Until the process has taken notice of a signal, and computed for longer than ONCE since."""
    times = psutil.Process(pid).cpu_times
    end = times().user + 10 * ONCE
    wait_for(child, lambda: times().user > end)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, EXIT_INTERRUPTED)])
def test_a_second_one_ends_one_process_at_once(tmp_path, number: signal.Signals, expected):
    with training(tmp_path, 1, **SILENT) as child:
        os.kill(child.pid, number)
        go_on(child, child.pid)
        os.kill(child.pid, number)
        assert ended(child)[0] == expected
    assert not (tmp_path / "runs/run/checkpoints").exists()


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_one_ends_all_ranks_at_once(tmp_path, number: signal.Signals):
    with training(tmp_path, RANKS, **SILENT) as child:
        last = pids(child, RANKS)[-1]
        os.kill(last, number)
        go_on(child, last)
        os.kill(last, number)
        code, _ = ended(child)
    assert code not in (0, EXIT_REQUEUE)
