"""metrics.jsonl: lines in order, cut back to where a resumed run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpibow.errors import MpibowError
from mpibow.run.events import EventFile, Silent


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
    with pytest.raises(MpibowError) as caught:
        EventFile(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be written: is a directory; set out= to another place"


def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    with pytest.raises(MpibowError) as caught:
        EventFile(path).add("a")
    assert str(caught.value) == f"{path}: cannot be written: no space left on device; set out= to another place"


def test_silence() -> None:
    events = Silent()
    events.add("a", loss=1)
    assert events.mark() == 0
    events.close()
