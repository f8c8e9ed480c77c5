"""The reporter: the progress line, and the times and waits in metrics.jsonl and summary.json."""

import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpibow.run.reporter import Reporter
from mpibow.run.results import Ledger
from mpibow.run.steering import Where
from mpibow.run.waits import Waits
from tests.run import tiny


class Shown:
    """Progress that is written down."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, float | None]] = []

    def show(self, samples: int, text: str, speed: float, end: float | None) -> None:
        self.shown.append((text, end))

    def close(self) -> None:
        pass


def session(folder: Path, ledger: Ledger, where: Where | None = None, **settings):
    """A session of which nothing but this is there."""
    job, source = tiny.job(folder, **settings), SimpleNamespace(folder=folder, header=None)
    return SimpleNamespace(
        job=job, config=job.config, rank=0, ledger=ledger, start=SimpleNamespace(source=source), where=where, gain=2.0
    )


@pytest.mark.parametrize(
    ("where", "words"),
    [(Where(40, 600, 1.5, (2, 1)), "learners 2+1"), (Where(40, 600, 1.5, (3,), "fused"), "learners 3 fused")],
)
def test_the_progress_line_has_every_ranks_learners(tmp_path, where: Where, words):
    reporter = Reporter(session(tmp_path, Ledger(), where, stop={"epochs": 99, "iterations": 100}))
    reporter._progress = shown = Shown()
    reporter._shown = -math.inf  # long ago
    reporter.show()
    reporter.close()
    line = f"epoch 1.50, 600 samples, loss -, 0 images/s, {words}, gain 2.00"
    assert shown.shown == [(line, 600 + 60 * 3 * 3)]


class Listed(list[str]):
    """Which nobody searches: that takes longer with every damage, after every iteration."""

    def __contains__(self, _: object) -> bool:
        raise AssertionError("searched")


def test_damages_are_told_once(tmp_path):
    """Also by a run that was resumed."""
    (tmp_path / "run").mkdir()
    ledger = Ledger(damaged=Listed(["train 3"]))
    reporter = Reporter(session(tmp_path / "run", ledger))
    for found in ({"train 3": "a"}, {"train 3": "a", "test 5": "b"}, {"test 5": "b", "train 4": "c"}):
        reporter.damaged(found)
    assert tiny.log(tmp_path) == [f"warning: {what}: the next intact sample takes its place" for what in "bc"]
    assert ledger.damaged == ["train 3", "test 5", "train 4"]


@pytest.mark.parametrize(
    ("wait", "busy", "expected"),
    [(0.0, 8.0, 1.0), (2.0, 8.0, 0.75), (8.0, 8.0, 0.0), (9.0, 8.0, 0.0), (0.0, 0.0, None), (0.5, 0.0, None)],
)
def test_what_is_hidden_of_the_all_reduces(wait, busy, expected):
    assert Waits(100.0, wait, busy).hidden() == expected


def test_what_is_hidden_since_the_last_entry():
    assert Waits(100.0, 3.0, 8.0).hidden(Waits(100.0, 2.0, 4.0)) == 0.75
    assert Waits(100.0, 3.0, 4.0).hidden(Waits(100.0, 2.0, 4.0)) is None


@tiny.rules("crossbow", "auto", "ssgd")
def test_two_ranks_say_how_much_was_hidden(tmp_path, rule):
    tiny.train(tmp_path, 2, rule=rule)
    found = [event["sync_hidden"] for event in tiny.events(tmp_path / "run", "train")]
    assert len(found) == 8
    assert all(0 <= part <= 1 for part in found)
    assert 0 <= tiny.summary(tmp_path)["sync_hidden"] <= 1
    if rule != "crossbow":  # the update needs the sums at once: learners stand still from their beginning to their end
        assert found == [0.0] * 8
        assert tiny.summary(tmp_path)["sync_hidden"] == 0.0


def test_one_rank_has_nothing_to_hide(tmp_path):
    tiny.train(tmp_path, learners=2)
    events = tiny.events(tmp_path / "run", "train")
    assert [(event["sync_hidden"], event["sync_busy"]) for event in events] == [(None, 0.0)] * 8
    assert tiny.summary(tmp_path)["sync_hidden"] is None


def test_entries_between_two_exchanges_have_nothing_to_hide(tmp_path):
    """With a period of 3 the steps of iterations 0, 1, then 2, 3, 4, ... are sent together, heard of one later."""
    tiny.train(tmp_path, 2, rule="crossbow-3", log={"every": 1}, stop={"epochs": None, "iterations": 9})
    found = [event["sync_hidden"] is not None for event in tiny.events(tmp_path / "run", "train")]
    assert found == [False, False, True, False, False, True, False, False, True]


def test_seconds_of_training_run_on_when_a_run_is_resumed(tmp_path):
    half = {"epochs": None, "iterations": 20}
    tiny.train(tmp_path, stop=half, checkpoint={"every": "20 iterations"}, evaluate={"every": 0.5})
    tiny.train(tmp_path, checkpoint={"every": "20 iterations"}, evaluate={"every": 0.5}, resume=tmp_path / "run")
    events = [event for event in tiny.events(tmp_path / "run") if event["event"] in ("train", "evaluate")]
    assert {event["event"] for event in events} == {"train", "evaluate"}
    assert events[-1]["position"] == 120
    assert all(a["elapsed"] <= b["elapsed"] for a, b in pairwise(events))
    assert events[0]["elapsed"] > 0
    assert events[-1]["elapsed"] <= tiny.summary(tmp_path)["seconds"]
    trained = [event for event in events if event["event"] == "train"]
    assert trained[-1]["images_per_second"] == pytest.approx(trained[-1]["position"] / trained[-1]["elapsed"])
