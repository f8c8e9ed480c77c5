"""metrics.jsonl: lines in order, cut back to where a resumed run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpibow.errors import OutputError
from mpibow.run.output import EventFile, Lines
from tests.refusals import refuses


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    events = EventFile(path)
    assert events.mark() == 0
    events.add("train", loss=0.5, learners=(2, 2), rate=None)
    assert events.mark() == path.stat().st_size  # it can be read at any time
    events.add("end")
    events.close()
    first, second = read(path)
    time = first.pop("time")
    assert isinstance(time, float)
    assert first == {"event": "train", "loss": 0.5, "learners": [2, 2], "rate": None}
    assert second["event"] == "end"


@pytest.mark.parametrize("rest", ["", '{"event": "tra', '{"event": "train"}\n' * 3])
def test_what_came_after_the_mark_is_cut(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "metrics.jsonl"
    events = EventFile(path)
    events.add("a")
    events.add("b")
    mark = events.mark()
    events.add("c")
    events.close()
    with path.open("a") as file:
        file.write(rest)
    again = EventFile(path, mark)
    assert again.mark() == mark
    again.add("d")
    again.close()
    assert [line["event"] for line in read(path)] == ["a", "b", "d"]


def test_a_file_that_is_shorter_than_its_mark_is_kept(tmp_path: Path) -> None:
    """Someone removed or emptied it: nothing is made up."""
    path = tmp_path / "metrics.jsonl"
    events = EventFile(path, 1000)
    events.add("a")
    events.close()
    assert [line["event"] for line in read(path)] == ["a"]


def test_a_line_without_its_end_is_cut(tmp_path: Path) -> None:
    """The machine went down before all of the file was on disk; or someone cut it."""
    path = tmp_path / "metrics.jsonl"
    events = EventFile(path)
    events.add("a")
    whole = events.mark()
    events.add("b")
    mark = events.mark()
    events.close()
    path.write_bytes(path.read_bytes()[:-5])
    again = EventFile(path, mark)
    assert again.mark() == whole
    again.add("c")
    again.close()
    assert [line["event"] for line in read(path)] == ["a", "c"]


def test_a_new_run_starts_from_nothing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("of a run that came to no checkpoint\n")
    events = EventFile(path)
    events.close()
    assert path.read_text() == ""


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    with refuses(f"{tmp_path}: cannot be written: is a directory; choose another place with out=DIR", OutputError):
        EventFile(tmp_path)


class Disk:
    """A file on a disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        self.room, self.data = room, b""

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, data: bytearray) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        part = bytes(data[: self.room])
        self.room -= len(part)
        self.data += part
        return len(part)


def test_lines_wait_for_a_full_disk() -> None:
    disk, said = Disk(8), list[str]()
    lines = Lines(Path("log.txt"), lambda: disk, said.append)
    for number in range(4):
        lines.add(f"line {number}")
    assert disk.data == b"line 0\nl"
    assert lines.waiting == 20
    disk.room = 3
    lines.add("line 4")
    disk.room = 1000
    lines.add("line 5")
    assert disk.data == b"".join(b"line %d\n" % number for number in range(6))
    assert lines.waiting == 0
    lines.close()
    assert said == [
        "warning: log.txt: cannot be written: no space left on device; the run goes on and keeps the lines in memory, "
        "free some space",
        "log.txt: can be written again; no line was lost",
    ]


def test_lines_that_the_disk_never_took_are_counted() -> None:
    disk, said = Disk(8), list[str]()
    lines = Lines(Path("log.txt"), lambda: disk, said.append)
    for number in range(4):
        lines.add(f"line {number}")
    lines.close()
    assert said[1:] == ["warning: log.txt: its last 3 line(s) are lost: no space left on device"]


def test_a_full_disk(tmp_path: Path) -> None:
    path, said = tmp_path / "metrics.jsonl", list[str]()
    path.symlink_to("/dev/full")
    events = EventFile(path, warn=said.append)
    events.add("a")
    assert events.mark() > 20
    events.add("b")
    events.close()
    assert [line.partition("metrics.jsonl: ")[2][:28] for line in said] == [
        "cannot be written: no space ", "its last 2 line(s) are lost:",
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_run_directory_that_is_gone(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    events = EventFile(folder / "metrics.jsonl")
    events.add("a")
    if how == "moved":
        folder.rename(tmp_path / "other")
    else:
        (folder / "metrics.jsonl").unlink()
        folder.rmdir()
    if how == "replaced":
        folder.mkdir()
        (folder / "metrics.jsonl").write_text("")
    for attempt in (lambda: events.add("b"), events.mark):
        with pytest.raises(OutputError, match=r"metrics.jsonl: is gone: the run directory was removed or moved while"):
            attempt()
    events.close()
