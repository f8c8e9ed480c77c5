"""The watchdog of a rank: which progress counts, who speaks, the words; and whoever works is left alone."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpibow.comm.pulse import LEAST, LONGEST, PREFIX, TIMES, Limits, Pulse, Sign, Signs, job_of
from mpibow.comm.watchdog import GRACE, Quiet, Watchdog, debugged
from mpibow.config import load_mapping
from mpibow.errors import EXIT_STALLED, ConfigError
from mpibow.system.process import state

RUN = {"model": {"name": "lenet"}, "data": {"train": "here"}}


def test_limits_are_given_or_measured():
    limits = Limits(start=None, iteration=7)
    assert limits.seconds("start", 3.0) == math.inf
    assert limits.seconds("iteration", 1000.0) == 7.0
    assert limits.seconds("evaluation", 0.001) == LEAST["evaluation"]
    assert limits.seconds("checkpoint", 900.0) == TIMES * 900.0
    assert limits.seconds("", 0.0) == math.inf


def test_a_config_sets_them():
    assert load_mapping(RUN, ["limits.iteration=2.5", "limits.start=null"]).limits == Limits(start=None, iteration=2.5)
    with pytest.raises(ConfigError, match=r"limits\.checkpoint: must be .*above 0.*got 0"):
        load_mapping(RUN, ["limits.checkpoint=0"])


def sign(beats: int = 0, phase: str = "iteration", ticks: int = 0, pid: int = 1) -> Sign:
    return Sign(pid, ticks, beats, phase, "")


class TestQuiet:
    def test_the_progress_of_any_rank_counts(self):
        quiet = Quiet()
        assert quiet.tick({0: sign(), 1: sign()}, 0) == 0
        assert quiet.tick({0: sign(), 1: sign()}, 0) == 1
        assert quiet.tick({0: sign(), 1: sign(beats=5)}, 0) == 0
        assert quiet.since == {0: 2, 1: 0}
        assert quiet.tick({0: sign(phase="evaluation"), 1: sign(beats=5)}, 0) == 0
        assert quiet.since == {0: 0, 1: 1}

    def test_a_rank_that_comes_is_progress(self):
        quiet = Quiet()
        for _ in range(4):
            quiet.tick({0: sign()}, 0)
        assert quiet.tick({0: sign(), 3: sign()}, 0) == 0

    def test_the_mean_is_that_of_what_is_over(self):
        quiet = Quiet()
        for beats in (0, 4, 8, 8, 8, 10):  # five ticks for ten steps
            quiet.tick({0: sign(beats)}, 0)
        assert quiet.mean("iteration") == 0.5
        for _ in range(100):
            quiet.tick({0: sign(10)}, 0)
        assert quiet.mean("iteration") == 0.5
        assert quiet.mean("checkpoint") == 0.0

    def test_a_rank_whose_watchdog_stands_still_is_silent(self):
        quiet = Quiet()
        for ticks in range(4):
            quiet.tick({0: sign(ticks=ticks), 1: sign(ticks=0)}, 0)
        assert quiet.silent == {0: 0, 1: 3}


class TestSigns:
    def test_ranks_of_a_job_see_each_other(self, tmp_path):
        first, second, other = Signs("a", 0, tmp_path), Signs("a", 5, tmp_path), Signs("b", 1, tmp_path)
        mine, yours = sign(7, pid=os.getpid()), Sign(os.getpid(), 3, 2**40, "start", "x" * 1000)
        first.write(mine)
        second.write(yours)
        assert first.read() == second.read()
        assert first.read() == {0: mine, 5: Sign(os.getpid(), 3, 2**40, "start", "x" * LONGEST)}
        assert other.read() == {}

    def test_a_file_that_somebody_else_made_is_not_written_to(self, tmp_path):
        (tmp_path / "mine").write_text("years")
        (tmp_path / f"{PREFIX}{os.getuid()}-a").symlink_to(tmp_path / "mine")
        with pytest.raises(OSError, match="symbolic links"):
            Signs("a", 0, tmp_path)
        if os.getuid() == 0:
            theirs = tmp_path / f"{PREFIX}{os.getuid()}-b"
            theirs.touch()
            os.chown(theirs, 65534, 65534)
            with pytest.raises(PermissionError, match="belongs to another user"):
                Signs("b", 0, tmp_path)
        assert (tmp_path / "mine").read_text() == "years"

    def test_no_file_stays_open(self, tmp_path):
        Signs("a", 0, tmp_path).write(sign())
        assert not [handle for handle in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(handle)]

    def test_the_name_goes_and_the_file_serves(self, tmp_path):
        signs = Signs("a", 0, tmp_path)
        signs.forget()
        signs.write(sign(pid=os.getpid()))
        assert list(signs.read()) == [0]
        assert list(tmp_path.iterdir()) == []

    def test_what_killed_jobs_left_is_no_rank_and_is_swept(self, tmp_path):
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        Signs("job", 0, tmp_path).write(sign(pid=dead.pid))
        Signs("living", 0, tmp_path).write(sign(pid=os.getpid()))
        again = Signs("job", 1, tmp_path)
        again.write(sign(pid=os.getpid()))
        assert list(again.read()) == [1]
        assert {path.name.removeprefix(f"{PREFIX}{os.getuid()}-") for path in tmp_path.iterdir()} == {"job", "living"}

    def test_a_rank_that_has_ended_is_still_seen(self, tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        signs = Signs("a", 1, tmp_path)
        signs.write(sign(pid=child.pid))
        assert list(signs.read()) == [1]
        child.communicate()
        assert list(signs.read()) == [1]
        assert state(child.pid) == ""

    def test_half_a_row_is_as_before(self, tmp_path):
        signs = Signs("a", 0, tmp_path)
        signs.write(sign(3, pid=os.getpid()))
        before = dict(signs.read())
        path = next(tmp_path.iterdir())
        path.write_bytes(path.read_bytes()[:12])
        assert signs.read() == before

    def test_jobs_have_their_launchers_names(self):
        assert job_of({"PMIX_NAMESPACE": "prterun-a/b@1", "SLURM_JOB_ID": "3"}) == "prterun-a_b@1"
        assert job_of({"SLURM_JOB_ID": "3", "SLURM_STEP_ID": "0"}) == "3-0"
        assert job_of({"SLURM_JOB_ID": "3"}) == str(os.getppid())


class Still(Watchdog):
    def _watch(self) -> None:
        """Its thread makes no tick."""


class Watched:
    """A watchdog whose ticks the test makes, and which ends nothing."""

    def __init__(self, limits: Limits, rank: int = 0, size: int = 1, signs: Signs | None = None) -> None:
        self.said = []
        self.ended = []
        self.pulse = Pulse(limits)
        self.dog = Still(self.pulse, rank, size, signs, self.said.append, self.ended.append)

    def tick(self, times: int) -> None:
        for _ in range(times):
            self.dog._ticks += 1
            self.dog.tick()


def watched_ranks(count: int, folder: Path) -> list[Watched]:
    return [Watched(Limits(iteration=30), rank, count, Signs("a", rank, folder)) for rank in range(count)]


def test_one_process_is_warned_at_a_tenth_and_ended_at_the_limit(tmp_path, capfd):
    watched = Watched(Limits(iteration=50))
    watched.pulse.folder = tmp_path
    watched.pulse.beat("iteration")
    watched.tick(5)
    assert watched.said == []
    watched.tick(20)
    (warning,) = watched.said
    assert warning.splitlines() == [
        "warning: no progress for 5 s; limits.iteration ends the run after 50 s",
        f"  rank 0, process {os.getpid()}: in an iteration for 5 s",
    ]
    watched.pulse.beat()
    watched.tick(50)
    assert watched.ended == []
    watched.tick(1)
    assert watched.ended == [EXIT_STALLED]
    assert watched.said[-1].splitlines()[0] == (
        "error: no progress for 50 s, which is the limit; the run ends with code 8"
    )
    assert "test_one_process_is_warned" in (tmp_path / "stacks-rank-0.txt").read_text()
    assert "test_one_process_is_warned" in capfd.readouterr().err


def test_whoever_makes_progress_is_left_alone():
    watched = Watched(Limits(evaluation=3))
    with watched.pulse.during("evaluation"):
        for _ in range(50):
            watched.pulse.beat()
            watched.tick(2)
    assert watched.pulse.phase == "start"
    assert watched.ended == []


def test_outside_of_a_run_nothing_is_watched():
    watched = Watched(Limits(start=3))
    watched.pulse.stop()
    watched.tick(100)
    assert watched.said == watched.ended == []


def test_a_person_at_a_debugger_is_left_alone():
    assert not debugged()
    watched = Watched(Limits(start=3))
    exec(compile("watched.tick(100)", "/usr/lib/python3/pdb.py", "exec"), {"watched": watched})
    assert watched.said == watched.ended == []


def test_the_first_rank_speaks_and_the_others_end_after_it(tmp_path, monkeypatch):
    ranks = watched_ranks(2, tmp_path)
    for each in ranks:
        each.pulse.ranks = 4, 2
        each.pulse.beat("iteration")
    ranks[0].pulse.waiting = "barrier"
    for _ in range(31 + GRACE):
        for each in ranks:
            each.tick(1)
    assert ranks[0].ended[0] == ranks[1].ended[0] == EXIT_STALLED
    assert ranks[0].said[1].splitlines()[1:4] == [
        f"  rank 1, process {os.getpid()}: in an iteration for 30 s",
        f"  rank 0, process {os.getpid()}: in an iteration for 30 s, waits for the others in: barrier",
        "  2 rank(s) of other nodes: not visible from here; see their output",
    ]
    assert ranks[1].said == []


def test_of_many_ranks_eight_are_listed(tmp_path):
    ranks = watched_ranks(12, tmp_path)
    for each in ranks:
        each.pulse.beat("iteration")
        each.pulse.waiting = "barrier" * (each is not ranks[10])
    for _ in range(31):
        for each in ranks:
            each.tick(1)
    lines = ranks[0].said[1].splitlines()
    assert lines[1] == f"  rank 10, process {os.getpid()}: in an iteration for 30 s"  # the others wait for it
    assert lines[9] == "... and 4 more ranks of this node"


def test_a_silent_first_rank_is_spoken_for(tmp_path):
    ranks = watched_ranks(2, tmp_path)
    for each in ranks:
        each.pulse.beat("iteration")
    ranks[1].tick(31)
    assert ranks[1].ended == [EXIT_STALLED]
    assert "  rank 0, process " in ranks[1].said[-1]
    assert "in an iteration for 30 s, does not respond" in ranks[1].said[-1]


def test_ranks_that_have_not_come_are_named(tmp_path):
    watched = Watched(Limits(start=10), 1, 3, Signs("a", 1, tmp_path))
    watched.pulse.waiting = "the start of MPI"
    watched.tick(11)
    assert watched.ended == [EXIT_STALLED]
    assert watched.said[-1].splitlines()[1:3] == [
        f"  rank 1, process {os.getpid()}: starting or ending for 10 s, waits for the others in: the start of MPI",
        "  rank 0, 2: not visible from here: it has not called mpibow (fit?) yet, or it is on another node",
    ]
    assert "--resume" not in watched.said[-1]


def test_a_rank_that_has_ended_without_a_word_ends_the_others(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lost = Signs("a", 1, tmp_path)
    lost.write(sign(pid=child.pid))
    watched = Watched(Limits(), 0, 2, Signs("a", 0, tmp_path))
    watched.tick(3)
    child.communicate()
    watched.tick(GRACE)
    assert watched.ended == []
    watched.tick(1)
    assert watched.ended == [5]
    said = f"error: rank 1, process {child.pid}, has ended without a message; its launcher did not end the others"
    assert watched.said == [said]


def test_a_rank_that_has_left_in_order_ends_nobody(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    left = Signs("a", 1, tmp_path)
    left.write(sign(pid=child.pid))
    watched = Watched(Limits(), 0, 2, Signs("a", 0, tmp_path))
    watched.tick(1)
    left.write(sign(pid=child.pid, phase=""))
    child.communicate()
    watched.tick(5 * GRACE)
    assert watched.said == watched.ended == []
