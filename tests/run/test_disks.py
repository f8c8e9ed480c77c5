"""Runs whose disk fills up, is read-only, or loses the run's directory on the way."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpibow.errors import CheckpointError, OutputError
from mpibow.run.session import Session
from tests.refusals import refuses
from tests.run import tiny


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no disk can be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> None:
    with (place / "others").open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def test_a_disk_that_others_fill_for_a_while(disk: Path, capsys):
    """No line is lost, and the bits are those of a run that had room."""

    def others(session: Session) -> None:
        if session.iteration == 10:
            fill(disk)
        if session.iteration == 30:
            (disk / "others").unlink()

    work = tiny.job(disk / "runs", log={"every": 1}, learners=2)
    long = {"event": "x" * 5000}  # more than the last page that is written has room for
    found = tiny.replay(work, before=lambda session: (others(session), session.reporter.note(str(long)))[0])
    trained = tiny.events(disk / "runs/run", "train")
    assert [event["iteration"] for event in trained] == list(range(1, 41))
    assert (disk / "runs/run/log.txt").read_text().count(str(long)) == 40
    said = capsys.readouterr().err
    for file in ("metrics.jsonl", "log.txt"):
        assert said.count(f"{file}: cannot be written: no space left on device; the run goes on") == 1
        assert said.count(f"{file}: can be written again; no line was lost") == 1
    whole = tiny.watch(disk.parent / "whole", learners=2)
    assert tiny.same_bits(found[0].weights, whole[0].weights)


def test_a_disk_that_stays_full(disk: Path):
    def others(session: Session) -> None:
        if session.iteration == 10:
            fill(disk)

    summary = disk / "runs/run/summary.json"
    with refuses(f"{summary}: cannot be written: no space left on device", OutputError):
        tiny.watch(disk / "runs", log={"every": 1}, before=others)
    point = {"checkpoint": {"every": "20 iterations"}}
    (disk / "others").unlink()
    shutil.rmtree(disk / "runs")
    with pytest.raises(CheckpointError, match=r"a checkpoint cannot be written: .*; free some space$"):
        tiny.watch(disk / "runs", before=others, **point)


def test_a_read_only_disk(disk: Path):
    """Refused at the door, new or resumed; nothing is trained."""
    point = {"checkpoint": {"every": "5 iterations"}, "iterations": 5}
    tiny.train(disk / "runs", **point)
    (disk / "runs/empty").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for name in ("new", "empty"):
        with pytest.raises(OutputError) as caught:
            tiny.train(disk / "runs", name=name)
        assert str(caught.value).endswith("read-only file system; choose another place with out=DIR")
        assert f"{disk / 'runs' / name}" in str(caught.value)
    expected = "cannot be written: read-only file system; choose another place with out=DIR"
    with refuses(f"{disk / 'runs/run/lock'}: {expected}", OutputError):
        tiny.train(disk / "runs", iterations=9, resume=disk / "runs/run")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("how", ["removed", "moved"])
@pytest.mark.parametrize("settings", [{"log": {"every": 5}}, {"checkpoint": {"every": "20 iterations"}}, {}])
def test_a_run_directory_that_goes(tmp_path, ranks, how, settings):
    folder = tmp_path / "run"

    def others(session: Session) -> None:
        if session.iteration == 12 and session.rank == 0:
            folder.rename(tmp_path / "other") if how == "moved" else shutil.rmtree(folder)

    quiet: dict[str, object] = {"log": {"every": 1000}, "evaluate": {"every": 1000}}
    with refuses(
        f"{folder / 'metrics.jsonl'}: is gone: the run directory was removed or moved while the run wrote to it; "
        "start the run again, or move the directory back and use --resume",
        OutputError,
    ):
        tiny.watch(tmp_path, ranks, before=others, **{**quiet, **settings})
    assert not folder.exists()
    if how == "moved":
        begun = json.loads((tmp_path / "other/metrics.jsonl").read_text().splitlines()[0])
        assert begun["event"] == "start"
