"""A run whose numbers go to Weights & Biases, offline; it needs the real package."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run import tiny

pytest.importorskip("wandb", reason="wandb is not installed: pip install 'mpibow[wandb]'")


BLOCK, HEADER, RECORD = 32768, 7, 7  # bytes: of LevelDB's log format, which wandb's files have


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


def test_an_offline_run_has_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    tiny.run(tiny.job(tmp_path, log={"to": ["wandb"], "every": 5}, metrics=["perplexity"]))
    (file,) = (tmp_path / "run").glob("wandb/offline-run-*/*.wandb")
    for _ in range(100):  # another process writes it
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
