"""The lock of a run directory: one run at a time, named to the others; a run that was killed never keeps it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mpibow.errors import OutputError
from mpibow.run import lock
from mpibow.run.lock import Holder, Lock, check, holder_of, sees
from mpibow.run.session import Session
from mpibow.system.process import begun, namespace
from tests.launching import ROOT
from tests.refusals import refuses
from tests.run import tiny

HOLD = (
    "import sys; from pathlib import Path; from mpibow.run.lock import Lock\nLock(Path(sys.argv[1])); print(flush=1)\n"
)
OURS = Holder("other", "node7", os.getpid(), "2026-01-02 03:04:05", namespace(), begun(os.getpid()))
THEIRS = replace(OURS, namespace="another kernel")


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path


def put(folder: Path, holder: Holder, age: float = 0.0) -> None:
    (folder / "lock").write_text(json.dumps(asdict(holder)))
    os.utime(folder / "lock", (time.time() - age,) * 2)


def taken(folder: Path) -> bool:
    """Whether the lock can be taken; it is given back."""
    try:
        held = Lock(folder, lambda text: None)
    except OutputError:
        return False
    assert holder_of(folder).token == held.token  # type: ignore[union-attr]
    held.close()
    assert list(folder.glob("*lock")) == []
    return True


def test_one_at_a_time(folder: Path, monkeypatch):
    monkeypatch.setattr(lock, "LATE", 0.0)
    held = Lock(folder)
    with pytest.raises(OutputError) as caught:
        Lock(folder)
    holder = holder_of(folder)
    assert holder is not None
    assert str(caught.value) == (
        f"{folder}: is in use by process {os.getpid()} on host {holder.host}, since {holder.since}; "
        "wait for its end or stop it, or choose another run directory with name=NAME"
    )
    assert sees(folder, held.token)
    assert not sees(folder / "elsewhere", held.token)
    held.close()
    assert taken(folder)


def test_a_run_that_was_killed(folder: Path):
    command = [sys.executable, "-c", HOLD + "input()", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert not taken(folder)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (folder / "lock").exists()
    assert taken(folder)


@pytest.mark.parametrize(
    "holder",
    [replace(OURS, pid=2**30), replace(OURS, begun="1")],
    ids=["ended", "its number is another process's now"],
)
def test_a_process_that_ended(folder: Path, holder: Holder):
    put(folder, holder)
    assert taken(folder)


def test_a_file_that_is_no_lock(folder: Path):
    for content in ("", "{", "[]", '{"token": "x"}'):
        (folder / "lock").write_text(content)
        assert taken(folder)


def test_another_host(folder: Path, monkeypatch):
    """Its process cannot be seen: the touches of the file are watched."""
    monkeypatch.setattr(lock, "WATCHED", 0.3)
    put(folder, THEIRS)
    said = list[str]()
    Lock(folder, said.append).close()
    assert said == [f"{folder}: locked by {THEIRS}: watching for 0.3 s whether it goes on"]
    monkeypatch.setattr(lock, "WATCHED", 1e9)
    put(folder, THEIRS, age=2 * lock.LONG)
    assert taken(folder)  # at once

    put(folder, THEIRS)
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.01):
            os.utime(folder / "lock")

    alive = threading.Thread(target=live)
    alive.start()
    try:
        assert not taken(folder)
    finally:
        ended.set()
        alive.join()


def test_a_lock_that_lives_is_touched(folder: Path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT", 0.01)
    held = Lock(folder)
    os.utime(folder / "lock", (0, 0))
    while (folder / "lock").stat().st_mtime == 0:
        time.sleep(0.01)
    held.close()


def test_of_many_that_find_a_stale_one_a_single_one_has_it(folder: Path):
    put(folder, replace(OURS, pid=2**30))
    held, refused, begin = list[Lock](), list[str](), threading.Barrier(8)

    def start() -> None:
        begin.wait()
        try:
            held.append(Lock(folder))
        except OutputError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(held), len(refused)) == (1, 7)
    check(folder, held[0].token)
    held[0].close()


def test_a_part_that_was_left_is_removed(folder: Path, monkeypatch):
    """Its process was killed in the moment in which it took the lock."""
    monkeypatch.setattr(lock, "WATCHED", 0.2)
    (folder / ".lock").write_text("")
    assert taken(folder)


def test_a_run_that_stood_still_for_too_long_ends_at_its_next_checkpoint(folder: Path):
    other = replace(THEIRS, token="new")

    def resumed_elsewhere(session: Session) -> None:
        if session.iteration == 8:
            put(folder / "run", other)

    with refuses(
        f"{folder / 'run'}: was taken over by {other}: this run stood still for too long, and ends", OutputError
    ):
        tiny.watch(folder, 2, checkpoint={"every": "5 iterations"}, before=resumed_elsewhere)
    assert holder_of(folder / "run") == other
    assert [path.name for path in (folder / "run/checkpoints").iterdir()] == ["iteration-0000000005"]


def test_two_runs_in_one_directory(folder: Path):
    """The second is refused before it changes anything; the first goes on, and gives the directory free, whatever ends
    it."""
    point = {"checkpoint": {"every": "5 iterations"}}

    def second(session: Session) -> None:
        if session.iteration in (7, 33):
            with tiny.unchanged(folder):
                newest = max((folder / "run/checkpoints").iterdir())
                for resume in ("auto", folder / "run", newest):
                    with pytest.raises(OutputError, match=r"run: is in use by process \d+ on host .*, since "):
                        tiny.train(folder, 2, resume=resume, **point)
        if session.iteration == 33:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.watch(folder, before=second, **point)
    assert not (folder / "run/lock").exists()
    assert tiny.train(folder, resume="auto", **point).summary.iterations == 40
    assert not (folder / "run/lock").exists()


def test_parts_of_a_killed_run_are_removed_when_it_is_resumed(folder: Path):
    point = {"checkpoint": {"every": "5 iterations"}}
    tiny.train(folder, iterations=10, **point)
    (folder / "run/checkpoints/.iteration-0000000099.part").mkdir()
    tiny.train(folder, resume="auto", **point)
    assert list((folder / "run/checkpoints").glob(".*")) == []
