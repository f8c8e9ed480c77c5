"""Numbers of events, and loggers that receive them: TensorBoard's files are read again, wandb's of a run offline."""

import json
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args
from unittest.mock import Mock

import pytest

from mpibow.config.schema import LoggerName
from mpibow.errors import ConfigError
from mpibow.run import loggers
from mpibow.run.loggers import Loggers, check_loggers, numbers_of
from tests.run import tiny

SETTINGS = {
    "log": {"to": ["tensorboard"], "every": 5}, "metrics": ["perplexity"], "checkpoint": {"every": "10 iterations"},
}  # fmt: skip
BLOCK, HEADER, RECORD = 32768, 7, 7  # bytes: of LevelDB's log format, which wandb's files have
WHERE = {"iteration": 5, "position": 60, "epoch": 1.0}


@pytest.mark.parametrize(
    ("event", "entries", "numbers"),
    [
        ("train", {"loss": 0.5, "accuracy": None, "rate": 0.1, "learners": (2, 1), "losses": [1.0], "elapsed": 3.0},
         {"training/loss": 0.5, "training/rate": 0.1, "training/learners": 3.0}),
        ("train", {"loss": float("nan"), "gain": 1.5, "learners": (2,)},
         {"training/gain": 1.5, "training/learners": 2.0}),
        ("evaluate", {"data": "test", "loss": 1.0, "accuracy": 0.5, "metrics": {"mae": 2.0, "confusion": [[1]]}},
         {"test/loss": 1.0, "test/accuracy": 0.5, "test/mae": 2.0}),
        ("evaluate", {"data": "test", "loss": 1.0, "checkpoint": "x"}, {"best/test/loss": 1.0}),
        ("average", {"data": "validation", "loss": 1.0, "accuracy": None}, {"average/validation/loss": 1.0}),
        ("callback", {"name": "twice", "value": 2.0, "none": None}, {"twice/value": 2.0}),
        ("learners", {"learners": (2,)}, {}),
    ],
)  # fmt: skip
def test_numbers_of_events(event, entries: Mapping, numbers: Mapping[str, float]):
    assert numbers_of(event, {**WHERE, **entries}) == numbers


class Failing:
    def __init__(self) -> None:
        self.calls = 0

    def add(self, numbers: Mapping[str, float], samples: int) -> None:
        self.calls += 1
        raise OSError("no space")

    def close(self) -> None:
        raise AssertionError("it gets nothing more")


def test_one_that_fails_is_left_out_and_the_run_goes_on(tmp_path):
    failing, notes = Failing(), list[str]()
    told = Loggers(["failing"], tmp_path, {}, 0, notes.append, {"failing": lambda *_: failing})
    for _ in range(3):
        told.add("train", **WHERE, loss=1.0, learners=(2,))
    told.close()
    assert failing.calls == 1
    assert notes == ["warning: log.to: failing failed and gets nothing more, metrics.jsonl has all: OSError: no space"]


def test_one_that_cannot_be_opened(tmp_path):
    def broken(folder: Path, settings: Mapping, begin: int):
        raise ValueError("no key")

    notes = list[str]()
    kinds = {"jsonl": None, "wandb": broken}
    Loggers(["jsonl", "wandb"], tmp_path, {}, 0, notes.append, kinds).close()
    assert notes == ["warning: log.to: wandb could not be opened, metrics.jsonl has all: ValueError: no key"]


def test_every_name_of_the_setting_has_an_entry():
    assert set(loggers.LOGGERS) == set(get_args(LoggerName))


def test_a_package_that_is_missing_is_named_at_the_door(tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "find_spec", lambda _: None)
    check_loggers(["jsonl"])
    said = r"^log\.to: tensorboard needs the package tensorboardX: pip install .*\[log\]'$"
    with tiny.unchanged(tmp_path), pytest.raises(ConfigError, match=said):
        tiny.train(tmp_path, 2, log={"to": ["tensorboard"]})


def test_wandb_tells_runs_of_one_name_apart(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", wandb := Mock())
    for place in "aba":
        loggers.Wandb(tmp_path / place / "run", {}, 0)
    first, other, again = (call.kwargs["id"] for call in wandb.init.call_args_list)
    assert first == again != other
    assert len(first) <= 64


def written(run: Path) -> dict[tuple[str, int], float]:
    """By tag and step, as TensorBoard shows them: a file that begins behind a step takes back what lies there."""
    reason = "tensorboardX is not installed: pip install 'mpibow[log]'"
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2", reason=reason)

    found = dict[tuple[str, int], float]()
    for file in sorted(run.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime_ns):
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            if event.HasField("session_log"):
                found = {key: value for key, value in found.items() if key[1] < event.step}
            found |= {(v.tag, event.step): v.simple_value for v in event.summary.value if v.HasField("simple_value")}
    return found


def test_tensorboards_numbers_are_those_of_metrics_jsonl(tmp_path):
    tiny.train(tmp_path, 2, **SETTINGS)
    found, run = written(tmp_path / "run"), tmp_path / "run"
    evaluated = tiny.events(run, "evaluate")
    assert evaluated
    for event in evaluated:
        assert found["test/loss", event["position"]] == pytest.approx(event["loss"], rel=1e-6)
        assert found["test/perplexity", event["position"]] == pytest.approx(event["metrics"]["perplexity"], rel=1e-6)
    trained = [event["position"] for event in tiny.events(run, "train")]
    assert [step for tag, step in found if tag == "training/loss"] == trained
    assert len(list(run.glob("events.out.tfevents.*"))) == 1  # rank 0 alone writes


def test_tensorboard_takes_back_of_a_resumed_run_what_it_does_again(tmp_path):
    tiny.train(tmp_path / "whole", **SETTINGS)
    cut = {**SETTINGS, "checkpoint": {"every": "20 iterations"}}
    tiny.train(tmp_path / "cut", **{**cut, "stop": {"iterations": 29}})
    (resume,) = (tmp_path / "cut" / "run" / "checkpoints").glob("iteration-*20")
    tiny.train(tmp_path / "cut", resume=resume, **cut)
    whole, again = written(tmp_path / "whole" / "run"), written(tmp_path / "cut" / "run")
    numbers = [key for key in whole if key[0] in ("training/loss", "test/loss")]
    assert {key: again[key] for key in numbers} == {key: whole[key] for key in numbers}


def test_bits_do_not_depend_on_it(tmp_path):
    pytest.importorskip("tensorboardX")
    with_it, without = (
        tiny.train(tmp_path / name, log={"to": to, "every": 1}).weights
        for name, to in (("with", ["jsonl", "tensorboard"]), ("without", ["jsonl"]))
    )
    assert tiny.same_bits(with_it, without)


def records(data: bytes) -> Iterator[bytes]:
    """What a .wandb file holds: pieces of crc, length, kind (1 whole, 2 first, 3 middle, 4 last) within blocks."""
    at, parts = HEADER, list[bytes]()
    while at + RECORD <= len(data):
        if BLOCK - at % BLOCK < RECORD:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + RECORD])
        parts.append(data[at + RECORD : at + RECORD + length])
        at += RECORD + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def test_an_offline_run_of_wandb_has_the_numbers(tmp_path, monkeypatch):
    reason = "wandb is not installed: pip install 'mpibow[wandb]'"
    wandb_internal_pb2 = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason=reason)

    monkeypatch.setenv("WANDB_MODE", "offline")
    tiny.train(tmp_path, log={"to": ["wandb"], "every": 5}, metrics=["perplexity"])
    (file,) = (tmp_path / "run").glob("wandb/offline-run-*/*.wandb")
    for _ in range(7200):  # another process writes it
        found = [wandb_internal_pb2.Record.FromString(data) for data in records(file.read_bytes())]
        if any(record.HasField("exit") for record in found):
            break
        time.sleep(0.1)
    items = [record.history.item for record in found if record.HasField("history")]
    rows = [{item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in row} for row in items]
    evaluated = tiny.events(tmp_path / "run", "evaluate")
    shown = {row["samples"]: row for row in rows if "test/loss" in row}
    for event in evaluated:
        assert shown[event["position"]]["test/loss"] == pytest.approx(event["loss"])
        assert shown[event["position"]]["test/perplexity"] == pytest.approx(event["metrics"]["perplexity"])
    trained = [row["samples"] for row in rows if "training/loss" in row]
    assert trained == [event["position"] for event in tiny.events(tmp_path / "run", "train")]
