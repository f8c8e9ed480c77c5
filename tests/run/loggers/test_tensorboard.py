"""Runs whose numbers go to TensorBoard's event files, read again by tensorboardX's own records."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.run import tiny

pytest.importorskip("tensorboardX", reason="tensorboardX is not installed: pip install 'mpibow[log]'")
SETTINGS: dict[str, Any] = {
    "log": {"to": ["tensorboard"], "every": 5}, "metrics": ["perplexity"], "checkpoint": {"every": "10 iterations"},
}  # fmt: skip


def written(run: Path) -> dict[tuple[str, int], float]:
    """By tag and step, as TensorBoard shows them: a file that begins behind a step takes back what lies there."""
    from tensorboardX.proto import event_pb2

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


def test_numbers_are_those_of_metrics_jsonl(tmp_path: Path) -> None:
    tiny.run(tiny.job(tmp_path, **SETTINGS), 2)
    found, run = written(tmp_path / "run"), tmp_path / "run"
    evaluated = tiny.events(run, "evaluate")
    assert evaluated
    for event in evaluated:
        assert found["test/loss", event["position"]] == pytest.approx(event["loss"], rel=1e-6)
        assert found["test/perplexity", event["position"]] == pytest.approx(event["metrics"]["perplexity"], rel=1e-6)
    trained = [event["position"] for event in tiny.events(run, "train")]
    assert [step for tag, step in found if tag == "training/loss"] == trained
    assert len(list(run.glob("events.out.tfevents.*"))) == 1  # rank 0 alone writes


def test_a_resumed_run_takes_back_what_it_does_again(tmp_path: Path) -> None:
    tiny.run(tiny.job(tmp_path / "whole", **SETTINGS))
    cut = {**SETTINGS, "checkpoint": {"every": "20 iterations"}}
    tiny.run(tiny.job(tmp_path / "cut", **{**cut, "stop": {"iterations": 29}}))
    (resume,) = (tmp_path / "cut" / "run" / "checkpoints").glob("iteration-*20")
    tiny.run(tiny.job(tmp_path / "cut", **cut), resume=resume)
    whole, again = written(tmp_path / "whole" / "run"), written(tmp_path / "cut" / "run")
    numbers = [key for key in whole if key[0] in ("training/loss", "test/loss")]
    assert {key: again[key] for key in numbers} == {key: whole[key] for key in numbers}


def test_bits_do_not_depend_on_it(tmp_path: Path) -> None:
    with_it, without = (
        tiny.run(tiny.job(tmp_path / name, log={"to": to, "every": 1})).weights
        for name, to in (("with", ["jsonl", "tensorboard"]), ("without", ["jsonl"]))
    )
    assert tiny.same_bits(with_it, without)
