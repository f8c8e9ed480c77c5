"""What a run's metrics say of its learners; whole runs are replayed in test_tuning.py."""

import json
from pathlib import Path

import pytest

from mpibow.data import Change, Timeline, fixed
from mpibow.run import timelines
from mpibow.run.timelines import recorded


def run_of(folder: Path, changes: int) -> Path:
    """One rank, whose learners are 1 and 2 in turn, ten iterations each."""
    start = {"event": "start", "iteration": 0, "learners": [1]}
    later = [{"event": "learners", "iteration": 10 * n, "learners": [1 + n % 2]} for n in range(1, changes + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in [start, *later]))
    return folder


def test_every_change_is_recorded_with_its_position(tmp_path):
    found = recorded(run_of(tmp_path, 3), 1, 4)
    assert found == Timeline(
        4, (Change(0, 0, (1,)), Change(10, 40, (2,)), Change(20, 120, (1,)), Change(30, 160, (2,)))
    )
    announced = fixed(4, (1,)).announce(10, (2,)).announce(20, (1,)).announce(30, (2,))
    assert found == announced == fixed(4, (1,)).followed(announced)


def test_no_change_is_looked_at_again(tmp_path, monkeypatch):
    """A run may have thousands: each follows from the one before it, and the timeline is made once."""
    made = list[int]()

    def made_of(batch: int, changes: tuple[Change, ...]) -> Timeline:
        made.append(len(changes))
        return Timeline(batch, changes)

    monkeypatch.setattr(timelines, "Timeline", made_of)
    monkeypatch.setattr(Timeline, "announce", lambda *_: pytest.fail("all changes were copied"))
    recorded(run_of(tmp_path, 50), 1, 4)
    assert made == [51]
