"""What metrics.jsonl and summary.json say of times and waits."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mpibow.session.reporter import hidden
from tests.run import tiny


def waits(wait: float, busy: float) -> dict[str, float]:
    return {"data_wait": 100.0, "sync_wait": wait, "sync_busy": busy}


@pytest.mark.parametrize(
    ("wait", "busy", "expected"),
    [(0.0, 8.0, 1.0), (2.0, 8.0, 0.75), (8.0, 8.0, 0.0), (9.0, 8.0, 0.0), (0.0, 0.0, None), (0.5, 0.0, None)],
)
def test_what_is_hidden_of_the_all_reduces(wait: float, busy: float, expected: float | None) -> None:
    assert hidden(waits(wait, busy)) == expected


def test_what_is_hidden_since_the_last_entry() -> None:
    assert hidden(waits(3.0, 8.0), waits(2.0, 4.0)) == 0.75
    assert hidden(waits(3.0, 4.0), waits(2.0, 4.0)) is None


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run/summary.json").read_text())
    return found


@pytest.mark.parametrize("rule", ["crossbow", "auto", "ssgd"])
def test_two_ranks_say_how_much_was_hidden(tmp_path: Path, rule: str) -> None:
    tiny.run(tiny.job(tmp_path, rule=tiny.RULES[rule]), 2)
    found = [event["sync_hidden"] for event in tiny.events(tmp_path / "run", "train")]
    assert len(found) == 8
    assert all(0 <= part <= 1 for part in found)
    assert 0 <= summary(tmp_path)["sync_hidden"] <= 1
    if rule != "crossbow":  # the update needs the sums at once: learners stand still from their beginning to their end
        assert found == [0.0] * 8
        assert summary(tmp_path)["sync_hidden"] == 0.0


def test_one_rank_has_nothing_to_hide(tmp_path: Path) -> None:
    tiny.run(tiny.job(tmp_path, learners=2))
    events = tiny.events(tmp_path / "run", "train")
    assert [(event["sync_hidden"], event["sync_busy"]) for event in events] == [(None, 0.0)] * 8
    assert summary(tmp_path)["sync_hidden"] is None


def test_entries_between_two_exchanges_have_nothing_to_hide(tmp_path: Path) -> None:
    """With a period of 3 the steps of iterations 0, 1, then 2, 3, 4, ... are sent together, heard of one later."""
    tiny.run(
        tiny.job(tmp_path, rule=tiny.RULES["crossbow-3"], log={"every": 1}, stop={"epochs": None, "iterations": 9}),
        2,
    )
    found = [event["sync_hidden"] is not None for event in tiny.events(tmp_path / "run", "train")]
    assert found == [False, False, True, False, False, True, False, False, True]


def test_seconds_of_training_run_on_when_a_run_is_resumed(tmp_path: Path) -> None:
    half = {"epochs": None, "iterations": 20}
    tiny.run(tiny.job(tmp_path, stop=half, checkpoint={"every": "20 iterations"}, evaluate={"every": 0.5}))
    tiny.run(
        tiny.job(tmp_path, checkpoint={"every": "20 iterations"}, evaluate={"every": 0.5}), resume=tmp_path / "run"
    )
    events = [event for event in tiny.events(tmp_path / "run") if event["event"] in ("train", "evaluate")]
    assert {event["event"] for event in events} == {"train", "evaluate"}
    assert events[-1]["position"] == 120
    assert all(a["elapsed"] <= b["elapsed"] for a, b in pairwise(events))
    assert events[0]["elapsed"] > 0
    assert events[-1]["elapsed"] <= summary(tmp_path)["seconds"]
    trained = [event for event in events if event["event"] == "train"]
    assert trained[-1]["images_per_second"] == pytest.approx(trained[-1]["position"] / trained[-1]["elapsed"])
