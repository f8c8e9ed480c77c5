"""metrics.jsonl: lines in order, cut back to where a resumed run goes on; and the progress line on a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from mpibow.errors import OutputError
from mpibow.run.output import EventFile, Line, Lines
from tests.refusals import refuses


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    events = EventFile(path)
    assert events.mark() == 0
    events.add("train", loss=0.5, learners=(2, 2), rate=None, more={"nan": float("nan"), "inf": [float("-inf")]})
    assert events.mark() == path.stat().st_size  # it can be read at any time
    events.add("end")
    events.close()
    first, second = read(path)
    time = first.pop("time")
    assert isinstance(time, float)
    assert first.pop("more") == {"nan": None, "inf": [None]}
    assert first == {"event": "train", "loss": 0.5, "learners": [2, 2], "rate": None}
    assert second["event"] == "end"


@pytest.mark.parametrize("rest", ["", '{"event": "tra', '{"event": "train"}\n' * 3])
def test_what_came_after_the_mark_is_cut(tmp_path, rest):
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


def test_a_file_that_is_shorter_than_its_mark_is_kept(tmp_path):
    """Someone removed or emptied it: nothing is made up."""
    path = tmp_path / "metrics.jsonl"
    events = EventFile(path, 1000)
    events.add("a")
    events.close()
    assert [line["event"] for line in read(path)] == ["a"]


def test_a_line_without_its_end_is_cut(tmp_path):
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


def test_a_new_run_starts_from_nothing(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("of a run that came to no checkpoint\n")
    events = EventFile(path)
    events.close()
    assert path.read_text() == ""


def test_where_it_cannot_be_written(tmp_path):
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


def four_lines(disk: Disk, said: list[str]) -> Lines:
    lines = Lines(Path("log.txt"), lambda: disk, said.append)
    for number in range(4):
        lines.add(f"line {number}")
    return lines


def test_lines_wait_for_a_full_disk():
    disk, said = Disk(8), list[str]()
    lines = four_lines(disk, said)
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


def test_lines_that_the_disk_never_took_are_counted():
    said = list[str]()
    four_lines(Disk(8), said).close()
    assert said[1:] == ["warning: log.txt: its last 3 line(s) are lost: no space left on device"]


def test_a_full_disk(tmp_path):
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
def test_a_run_directory_that_is_gone(tmp_path, how):
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


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("samples", "end", "expected"),
    [
        (250, 1000.0, r" 25%|███         | epoch 2.50 eta \d\d:\d\d"),
        (1004, 1000.0, r"100%|████████████| epoch 2.50 eta 00:00"),  # the last iteration passes it
        (250, None, "epoch 2.50"),
        (250, 1e300, "epoch 2.50"),  # stop.epochs that mean for ever
    ],
)
def test_how_far_a_run_is(monkeypatch, samples, end, expected):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    line = Line(None, 0)
    line.show(samples, "epoch 2.50", 100.0, end)
    line.close()
    last = re.split("[\r\n]+", terminal.getvalue().rstrip())[-1]
    assert re.fullmatch(expected.replace("|", r"\|"), last.rstrip()), last


@pytest.mark.parametrize(
    ("end", "expected"),
    [(1000.0, ", eta 0:00:08"), (200.0, ", eta 0:00:00"), (1e10, ", eta 1157 days, 9:46:38"), (1e300, ""), (None, "")],
)
def test_what_is_left_in_a_log(capsys, end, expected):
    Line(None, 0).show(250, "epoch 2.50", 100.0, end)
    assert capsys.readouterr().err == f"epoch 2.50{expected}\n"


def test_below_a_cell_of_a_notebook_the_line_is_live(monkeypatch):
    """Jupyter's stream is no terminal, and writes a line again after a carriage return as one."""
    cell = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(sys, "stderr", cell)
    line = Line(None, 0)
    line.show(250, "epoch 2.50", 100.0, 1000.0)
    line.show(500, "epoch 5.00", 100.0, 1000.0)
    line.close()
    assert re.search(r"\r 50%\|[█#]{6}      \| epoch 5.00 eta \d\d:\d\d", cell.getvalue())


def test_a_quiet_line_writes_the_log_alone(tmp_path, monkeypatch, capsys):
    line = Line(tmp_path / "log.txt", 0, quiet=True)
    line.note("a note")
    line.close()
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "log.txt").read_text().endswith(" a note\n")
