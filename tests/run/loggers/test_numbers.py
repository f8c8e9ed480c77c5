"""The numbers of events, and what becomes of a logger that fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mpibow.errors import ConfigError
from mpibow.run.loggers import table
from mpibow.run.loggers.logger import Loggers, numbers_of
from mpibow.run.loggers.table import Kind, check_loggers, open_loggers
from tests.run import tiny

WHERE = {"iteration": 5, "position": 60, "epoch": 1.0}


@pytest.mark.parametrize(
    ("event", "entries", "numbers"),
    [
        ("train", {"loss": 0.5, "accuracy": None, "rate": 0.1, "learners": (2, 1), "losses": [1.0], "elapsed": 3.0},
         {"training/loss": 0.5, "training/rate": 0.1, "training/learners": 3.0}),
        ("train", {"loss": float("nan"), "gain": 1.5}, {"training/gain": 1.5}),
        ("evaluate", {"data": "test", "loss": 1.0, "accuracy": 0.5, "metrics": {"mae": 2.0, "confusion": [[1]]}},
         {"test/loss": 1.0, "test/accuracy": 0.5, "test/mae": 2.0}),
        ("evaluate", {"data": "test", "loss": 1.0, "checkpoint": "x"}, {"best/test/loss": 1.0}),
        ("average", {"data": "validation", "loss": 1.0, "accuracy": None}, {"average/validation/loss": 1.0}),
        ("callback", {"name": "twice", "value": 2.0, "none": None}, {"twice/value": 2.0}),
        ("learners", {"learners": (2,)}, {}),
    ],
)  # fmt: skip
def test_numbers_of_events(event: str, entries: Mapping[str, Any], numbers: Mapping[str, float]) -> None:
    assert numbers_of(event, {**WHERE, **entries}) == numbers


class Failing:
    def __init__(self) -> None:
        self.calls = 0

    def add(self, numbers: Mapping[str, float], samples: int) -> None:
        self.calls += 1
        raise OSError("no space")

    def close(self) -> None:
        raise AssertionError("it gets nothing more")


def test_one_that_fails_is_left_out_and_the_run_goes_on() -> None:
    failing, notes = Failing(), list[str]()
    told = Loggers({"tensorboard": failing}, notes.append)
    for _ in range(3):
        told.add("train", **WHERE, loss=1.0)
    told.close()
    assert failing.calls == 1
    assert notes == [
        "warning: log.to: tensorboard failed and gets nothing more, metrics.jsonl has all: OSError: no space"
    ]


def test_one_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path, settings: Mapping[str, Any], begin: int) -> Any:
        raise ValueError("no key")

    notes = list[str]()
    monkeypatch.setattr(table, "LOGGERS", {"wandb": Kind(broken, "json", "wandb")})
    assert open_loggers(["jsonl", "wandb"], tmp_path, {}, 0, notes.append) == {}
    assert notes == ["warning: log.to: wandb could not be opened, metrics.jsonl has all: ValueError: no key"]


def test_a_package_that_is_missing_is_named_at_the_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "LOGGERS", {"tensorboard": Kind(Failing, "no_such_package", "log")})  # type: ignore[arg-type]
    check_loggers(["jsonl"])
    with tiny.unchanged(tmp_path), pytest.raises(ConfigError) as caught:
        tiny.job(tmp_path, log={"to": ["tensorboard"]})
    assert str(caught.value).startswith("log.to: tensorboard needs the package no_such_package: pip install ")
    assert str(caught.value).endswith("[log]'")
