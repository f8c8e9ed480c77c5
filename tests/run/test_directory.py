"""The run directory: its name, the newest one, small files that are whole or not there, how often a lost run starts."""

import errno
import os
import re
from pathlib import Path

import pytest

from mpibow import again
from mpibow.errors import EXIT_CODES, ConfigError, MpibowError
from mpibow.run import directory
from mpibow.run.directory import KILLED, PASSING, may_start_again
from tests.comm.threads import on_threads
from tests.refusals import refuses


def test_a_made_up_name_is_new_every_time(tmp_path, monkeypatch):
    monkeypatch.setattr(directory.time, "strftime", lambda form: "20260102-030405")
    names = [directory.create(tmp_path / "runs", "auto", "mlp-digits").name for _ in range(3)]
    stem = "mlp-digits-20260102-030405"
    assert names == [stem, f"{stem}-2", f"{stem}-3"]


def test_a_made_up_name_says_when(tmp_path):
    assert re.fullmatch(r"x-\d{8}-\d{6}", directory.create(tmp_path, "auto", "x").name)


def test_a_given_name(tmp_path):
    path = directory.create(tmp_path / "a/b", "mine", "x")
    assert path == tmp_path / "a/b/mine"
    assert directory.create(tmp_path / "a/b", "mine", "x") == path  # nothing is in it
    (path / "config.yaml").write_text("")
    with refuses(f"name: {path} exists already; continue it with --resume {path}, or choose another name", MpibowError):
        directory.create(tmp_path / "a/b", "mine", "x")
    assert directory.create(tmp_path / "a/b", "mine", "x", again=True) == path


@pytest.mark.parametrize("again", [False, True])
def test_a_file_of_that_name(tmp_path, again):
    (tmp_path / "mine").write_text("")
    with pytest.raises(MpibowError, match="exists already"):
        directory.create(tmp_path, "mine", "x", again=again)


def test_no_place(tmp_path):
    (tmp_path / "file").write_text("")
    expected = f"out: {tmp_path / 'file/mine'} cannot be made: not a directory; choose another place with out=DIR"
    with refuses(expected, MpibowError):
        directory.create(tmp_path / "file", "mine", "x")


def make_run(folder: Path, name: str, time: int, whole: bool = True) -> Path:
    point = folder / name / "checkpoints/iteration-0000000010"
    point.mkdir(parents=True)
    if whole:
        (point / "checkpoint.json").write_text("")
        os.utime(point / "checkpoint.json", (time, time))
    return folder / name


def test_the_newest_run(tmp_path):
    assert directory.latest(tmp_path / "none", "auto") is None
    assert directory.latest(tmp_path, "auto") is None
    make_run(tmp_path, "a", 300)
    newest = make_run(tmp_path, "b", 500)
    make_run(tmp_path, "c", 400)
    make_run(tmp_path, "d", 0, whole=False)
    (tmp_path / "e").mkdir()
    (tmp_path / "file").write_text("")
    assert directory.latest(tmp_path, "auto") == newest
    assert directory.latest(tmp_path, "c") == tmp_path / "c"
    mine = make_run(tmp_path, "net-20261130-120000", 100)
    make_run(tmp_path, "net-2-20261130-120000", 200)
    assert directory.latest(tmp_path, "auto", "net-20??????-??????*") == mine
    assert directory.latest(tmp_path, "d") is None
    assert directory.latest(tmp_path, "e") is None
    assert directory.latest(tmp_path, "none") is None


def test_a_small_file(tmp_path):
    directory.write(tmp_path / "a.txt", "one\n")
    directory.write(tmp_path / "a.txt", "two\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "two\n"


def test_a_small_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a.txt").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with refuses(f"{tmp_path / 'a.txt'}: cannot be written: no space left on device", MpibowError):
        directory.write(tmp_path / "a.txt", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.parametrize(
    ("name", "why"), [("file/a.svg", "not a directory"), (250 * "a" + ".svg", "file name too long")]
)
def test_a_place_where_no_file_can_be(tmp_path, name, why):
    (tmp_path / "file").write_text("")
    with refuses(f"{tmp_path / name}: cannot be written: {why}", MpibowError):
        directory.write(tmp_path / name, "new")


def test_rank_0_works_for_all():
    calls: list[int] = []

    def work() -> dict[str, int]:
        calls.append(1)
        return {"found": 3}

    found = on_threads(3, lambda comm: directory.on_rank_0(lambda function: function(comm), work))
    assert found == [{"found": 3}] * 3
    assert calls == [1]


def test_what_fails_on_rank_0_fails_on_all():
    def work():
        raise ConfigError("seed: is odd")

    def body(comm) -> str:
        try:
            directory.on_rank_0(lambda function: function(comm), work)
        except ConfigError as error:
            return str(error)
        return "no error"

    assert on_threads(3, body) == ["seed: is odd"] * 3


def checkpoint(run: Path, iteration: int) -> None:
    folder = run / f"checkpoints/iteration-{iteration:010d}"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").touch()


def starts(run: Path, times: int, code: int = 8) -> list[bool]:
    return [may_start_again(code, run) for _ in range(times)]


def test_three_times_and_again_after_a_newer_checkpoint(tmp_path):
    run = tmp_path / "runs/job"
    assert starts(run, 5) == [True] * 3 + [False] * 2  # it came to no checkpoint
    for iteration in (90, 1000):
        checkpoint(run, iteration)
        assert starts(run, 5, KILLED) == [True] * 3 + [False] * 2


def test_a_checkpoint_that_was_not_completed_does_not_count(tmp_path):
    assert starts(tmp_path / "job", 3) == [True] * 3
    (tmp_path / "job/checkpoints/iteration-0000000001").mkdir(parents=True)
    assert starts(tmp_path / "job", 1) == [False]


def test_a_count_that_is_damaged_begins_anew(tmp_path):
    starts(tmp_path / "job", 3)
    (tmp_path / "job.failures.json").write_text("{")
    assert starts(tmp_path / "job", 4) == [True] * 3 + [False]


@pytest.mark.parametrize("code", [0, *sorted({*EXIT_CODES} - {*PASSING}), 143])
def test_other_codes_are_no_reason(code, tmp_path):
    assert not may_start_again(code, tmp_path / "job")
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_the_folder_of_the_config(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("{model: {name: mlp}, data: {train: a, test: b}, out: elsewhere}")
    arguments = ["137", f"{tmp_path}/run.yaml", f"out={tmp_path}/there", "name=job-7"]
    assert [again.main(arguments) for _ in range(4)] == [0, 0, 0, 1]
    assert (tmp_path / "there/job-7.failures.json").exists()
    said = "exit code 137: not queued again; 5, 8 and 137 are, 3 times without a new checkpoint\n"
    assert capsys.readouterr().out == said
    assert again.main(["8", f"{tmp_path}/none.yaml"]) == 1
