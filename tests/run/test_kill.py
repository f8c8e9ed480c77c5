"""kill -9 at any moment: the run that is resumed ends with the bits of the run that was never killed."""

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mpibow.run import checkpoint, lock
from mpibow.run.session import Session
from tests.launching import RANKS, needs_mpi
from tests.run import tiny
from tests.run.processes import centre, ended, last_iteration, pids, reached, started, wait_for, write_run
from tests.run.test_resume import arrays, copy, entries

KILLS = 2  # of processes; each costs a start of all ranks


class Killed(BaseException):
    """What nothing catches; whatever is on disk stays as it is."""


def kill_at(iteration: int) -> Callable[[Session], None]:
    def kill(session: Session) -> None:
        if session.iteration == iteration:
            raise Killed

    return kill


@tiny.rules("auto", "crossbow-3", "diloco", "ssgd")
def test_at_twenty_iterations(tmp_path, rule):
    settings = {"rule": {**tiny.RULES[rule], "resync": 7}, "learners": 2, "net": tiny.normed}
    every = {"every": "6 iterations", "keep": 2}
    tiny.train(tmp_path / "whole", 2, checkpoint=every, **settings)
    work = tiny.job(tmp_path / "cut", checkpoint=every, **settings)
    for iteration in sorted(random.Random(rule).sample(range(40), 20)):
        with pytest.raises(Killed):
            tiny.replay(work, 2, before=kill_at(iteration), resume="auto")
    tiny.run(work, 2, resume="auto")
    assert arrays(tmp_path / "cut", 40) == arrays(tmp_path / "whole", 40)
    assert entries(tmp_path / "cut") == entries(tmp_path / "whole")


def test_at_every_step_of_writing_a_checkpoint(tmp_path, monkeypatch):
    """Before every call that changes a folder or waits for the disk, in the third checkpoint of a run."""
    work = tiny.job(tmp_path / "before", learners=2, checkpoint={"every": "10 iterations", "keep": 1})
    whole = tiny.train(tmp_path / "whole", learners=2)
    with pytest.raises(Killed):
        tiny.replay(work, before=kill_at(29))
    left = {"steps": 10**6}
    monkeypatch.setattr(lock, "WATCHED", 0.1)  # a lock that is cut off in the making is another's for so long

    def stepping(function: Callable) -> Callable:
        def step(*arguments, **named):
            if left["steps"] == 0:
                raise Killed
            left["steps"] -= 1
            return function(*arguments, **named)

        return step

    for owner, name in (
        (Path, "mkdir"), (Path, "rename"), (Path, "symlink_to"), (checkpoint.os, "fsync"), (checkpoint, "save_file"),
        (shutil, "rmtree"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, stepping(getattr(owner, name)))
    steps = 0
    for steps in range(100):
        left["steps"] = 10**6
        folder = copy(tmp_path / "before", tmp_path / str(steps))
        again = tiny.job(folder, learners=2, checkpoint={"every": "10 iterations", "keep": 1})
        left["steps"] = steps
        try:
            tiny.replay(again, before=kill_at(31), resume="auto")
        except Killed:
            done = left["steps"] > 0  # it came to iteration 31
        left["steps"] = 10**6
        found = tiny.run(again, resume="auto")
        assert tiny.same_bits(found.weights, whole.weights), steps
        assert not list((folder / "run/checkpoints").glob(".iteration*")), steps
        if done:
            break
    assert 10 < steps < 99


@needs_mpi
@pytest.mark.slow
def test_processes(tmp_path):
    """One is killed, then one is told to stop, and all are started again."""
    command = ("-m", "mpibow.train", "run.yaml", "--resume", "auto")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        write_run(folder, checkpoint={"every": "40 iterations"})
    numbers, run = random.Random(1), cut / "runs/run"
    for kill in range(KILLS):
        number = signal.SIGTERM if kill == KILLS // 2 else signal.SIGKILL
        target = max(last_iteration(run / "metrics.jsonl"), 0) + numbers.randrange(1, 300)
        with started(RANKS, *command, cwd=cut) as child:
            wait_for(child, lambda target=target: reached(run / "metrics.jsonl", target))  # type: ignore[misc]
            os.kill(numbers.choice(pids(child, RANKS)), number)
            code, said = ended(child)
        assert code == 75 if number == signal.SIGTERM else code not in (0, 75), said
    end = last_iteration(run / "metrics.jsonl") + 60
    for folder in (whole, cut):
        with started(RANKS, *command, f"stop.iterations={end}", cwd=folder) as child:
            code, said = ended(child)
            assert code == 0, said
    assert centre(run, end) == centre(whole / "runs/run", end)
    lines = [line["iteration"] for line in tiny.events(run, "train")]
    assert lines == list(range(1, end + 1))
    assert entries(cut / "runs") == entries(whole / "runs")
