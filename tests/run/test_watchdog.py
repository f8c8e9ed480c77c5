"""No silent hang: whichever rank stands still, all end and it is named; a job that was suspended whole goes on."""

import os
import re
import signal
import subprocess
import time
from itertools import pairwise

import pytest

from mpibow.comm import Single
from mpibow.errors import EXIT_STALLED, CommunicationError
from mpibow.train import train
from tests.launching import RANKS, launcher, needs_mpi
from tests.run import tiny
from tests.run.processes import ended, last_iteration, pids, reached, started, wait_for, write_run

LIMIT = 16  # seconds: a busy machine makes some progress in them
OFTEN = {"evaluate": {"every": 10**6}, "checkpoint": {"every": None}, "limits": {"iteration": LIMIT}}

SCRIPT = """
import os, sys, time
import numpy as np
import mpibow as mb
from mpibow.comm.launch import find_launcher

if find_launcher(os.environ).rank == 1:
    time.sleep(1000)
images = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
mb.fit(lambda x: mb.dense(x, 3), (images, np.arange(60, dtype=np.int32) % 3), batch_size=3, limits={"start": 4})
"""


def test_batches_that_are_evaluated_and_files_that_are_written_are_progress(tmp_path):
    comm, seen = Single(), list[tuple[str, int]]()
    comm.pulse.show = lambda: seen.append((comm.pulse.phase, comm.pulse.beats))
    work = tiny.job(tmp_path, evaluate={"batch_size": 4}, checkpoint={"every": "1 epoch"}, stop={"epochs": 2})
    train(work, comm)
    phases = [phase for phase, _ in seen]
    assert phases[0] == "iteration"
    assert phases[-1] == "start"  # what comes after the run
    beats = {phase: end - begin for (phase, begin), (_, end) in pairwise(seen)}
    assert beats["evaluation"] >= 20 // 4
    assert beats["checkpoint"] >= 3  # files
    assert comm.pulse.limits == work.config.limits


@needs_mpi
def test_a_stopped_rank_ends_all_and_is_named(tmp_path):
    """Rank 0, for which another one speaks; of others tests/comm/test_watchdog.py."""
    config, rank, speaker = write_run(tmp_path, **OFTEN), 0, 1
    with started(RANKS, "-m", "mpibow.train", str(config), cwd=tmp_path) as child:
        wait_for(child, lambda: reached(tmp_path / "runs/run/metrics.jsonl", 20))
        pid = pids(child, RANKS)[rank]
        os.kill(pid, signal.SIGSTOP)
        code, said = ended(child)
    assert code == EXIT_STALLED, said
    assert f"rank {speaker}: error: no progress for" in said
    named = rf"rank {speaker}:   rank {rank}, process {pid}: in an iteration for \d+ s, was stopped by a signal"
    assert re.search(named, said), said
    assert re.search(rf"rank {speaker}:   rank {speaker}, .*, waits for the others in: ", said), said
    stands = r"mpibow/comm/mpi\.py\", line \d+ in "  # where the speaker waits
    assert re.search(stands, said), said
    assert re.search(stands, (tmp_path / f"runs/run/stacks-rank-{speaker}.txt").read_text())


@needs_mpi
def test_a_rank_that_never_calls_fit_ends_all_and_is_named(tmp_path):
    (tmp_path / "mine.py").write_text(SCRIPT)
    with started(RANKS, "mine.py", cwd=tmp_path) as child:
        code, said = ended(child)
    assert code == EXIT_STALLED, said
    assert (
        "rank 0:   rank 1: not visible from here: it has not called mpibow (fit?) yet, or it is on another node" in said
    )
    assert re.search(r"rank 0:   rank 0, .* waits for the others in: the start of MPI", said), said


@needs_mpi
def test_a_job_that_was_suspended_whole_goes_on(tmp_path):
    config, metrics = write_run(tmp_path, **OFTEN), tmp_path / "runs/run/metrics.jsonl"
    with started(RANKS, "-m", "mpibow.train", str(config), cwd=tmp_path) as child:
        wait_for(child, lambda: reached(metrics, 20))
        ranks = pids(child, RANKS)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in ranks:
                os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(LIMIT + 2)
        before = last_iteration(metrics)
        wait_for(child, lambda: reached(metrics, before + 1500))


def has_ulfm() -> bool:
    """Whether the launcher is an Open MPI that lets the others be when a rank is killed."""
    if launcher() is None:
        return False
    done = subprocess.run([str(launcher()), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Open MPI\) (\d+)", done.stdout)
    return found is not None and int(found[1]) >= 5


@needs_mpi
@pytest.mark.skipif(not has_ulfm(), reason="the launcher is no Open MPI 5")
def test_a_killed_rank_ends_all_where_the_launcher_does_not(tmp_path):
    config = write_run(tmp_path, **OFTEN)
    with started(RANKS, "-m", "mpibow.train", str(config), cwd=tmp_path, options=("--with-ft", "ulfm")) as child:
        wait_for(child, lambda: reached(tmp_path / "runs/run/metrics.jsonl", 20))
        pid = pids(child, RANKS)[1]
        os.kill(pid, signal.SIGKILL)
        code, said = ended(child)
    assert code == CommunicationError.code, said
    assert f"error: rank 1, process {pid}, has ended without a message" in said or "MPI error: " in said
