"""What the progress line says of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpibow.run.ledger import Ledger
from mpibow.session.reporter import Reporter
from mpibow.session.where import Where
from tests.run import tiny


class Shown:
    """Progress that is written down."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ends: list[float | None] = []

    def note(self, text: str) -> None:
        pass

    def show(self, samples: int, text: str, speed: float, end: float | None) -> None:
        self.lines.append(text)
        self.ends.append(end)

    def close(self) -> None:
        pass


def session(folder: Path, ledger: Ledger, where: Where | None = None, **settings: Any) -> Any:
    """A session of which nothing but this is there."""
    job, source = tiny.job(folder, **settings), SimpleNamespace(folder=folder, header=None)
    return SimpleNamespace(
        job=job, config=job.config, rank=0, ledger=ledger, start=SimpleNamespace(source=source), where=where, gain=2.0
    )


@pytest.mark.parametrize(
    ("where", "words"),
    [(Where(40, 600, 1.5, (2, 1)), "learners 2+1"), (Where(40, 600, 1.5, (3,), "fused"), "learners 3 fused")],
)
def test_the_progress_line_has_every_ranks_learners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Where, words: str
) -> None:
    shown = Shown()
    monkeypatch.setattr("mpibow.session.reporter.SHOW_EVERY", 0.0)
    monkeypatch.setattr("mpibow.session.reporter.Line", lambda *_, **__: shown)
    reporter = Reporter(session(tmp_path, Ledger(), where, stop={"epochs": 99, "iterations": 100}))
    reporter.show()
    reporter.close()
    (line,) = shown.lines
    assert shown.ends == [600 + 60 * 3 * 3]
    assert line == f"epoch 1.50, 600 samples, loss -, 0 images/s, {words}, gain 2.00"


class Listed(list[str]):
    """Which nobody searches: that takes longer with every damage, after every iteration."""

    def __contains__(self, _: object) -> bool:
        raise AssertionError("searched")


def test_damages_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a run that was resumed."""
    told = list[str]()
    monkeypatch.setattr("mpibow.session.reporter.Line", lambda *_, **__: SimpleNamespace(note=told.append))
    ledger = Ledger(damaged=Listed(["train 3"]))
    reporter = Reporter(session(tmp_path, ledger))
    for found in ({"train 3": "a"}, {"train 3": "a", "test 5": "b"}, {"test 5": "b", "train 4": "c"}):
        reporter.damaged(found)
    assert told == [f"warning: {what}: the next intact sample takes its place" for what in "bc"]
    assert ledger.damaged == ["train 3", "test 5", "train 4"]
