"""bench_copies.py: a short run of its four sides, and its page on figures that a hand can check."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.launching import run

SIZE = 4 * (784 * 10 + 16)  # bytes of logistic's weights; its 10 biases are padded to 16


def test_a_short_run(tmp_path: Path) -> None:
    """Two learners on one copy save a row of weights and one of momenta; --resume measures nothing twice."""
    command = [sys.executable, "-m", "benchmarks.averaging.bench_copies", "--device", "numpy", "--pairs", "2"]
    command += ["--seconds", "0.02"]
    command += ["--output", str(tmp_path), "--resume", "--nets", "logistic:2"]
    done = run(command)
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "copies.json").read_text())
    made = first["nets"]["logistic:2"]
    assert list(made["rounds"]) == ["replicas", "one copy", "one plan", "one learner"]
    assert all(len(each) == 2 and min(each) > 0 for each in made["rounds"].values())
    held = made["bytes"]
    assert held["replicas"] == 2 * held["one learner"]
    assert held["replicas"] - held["one copy"] == 2 * SIZE
    assert held["one learner"] < held["one plan"] < held["replicas"]
    assert done.stdout == (tmp_path / "copies.md").read_text()
    again = run([*command, "logistic:1:3"])
    assert again.returncode == 0, again.stderr
    then = json.loads((tmp_path / "copies.json").read_text())["nets"]
    assert list(then) == ["logistic:2", "logistic:1:3"]
    assert then["logistic:1:3"]["bytes"]["replicas"] == 3 * then["logistic:1:3"]["bytes"]["one learner"]
    assert then["logistic:2"] == made


def test_times_are_of_rounds() -> None:
    """A machine at half its speed in one round changes no ratio."""
    bench = importlib.import_module("benchmarks.averaging.bench_copies")
    made = {
        "date": "d", "commit": "c", "load": [0.1, 1.9], "seconds": 1.0,
        "bytes": {"replicas": 4 << 20, "one copy": 3 << 20, "one plan": 5 << 19, "one learner": 2 << 20},
        "rounds": {"replicas": [10.0, 5.0, 10.0], "one copy": [12.0, 6.0, 15.0], "one plan": [8.0, 4.0, 4.0],
                   "one learner": [5.0, 2.5, 5.0]},
    }  # fmt: skip
    found = {"about": {"command": "x", "processor": "p", "cores": 2, "mpibow": {"numpy": "2"}}, "nets": {"net:4": made}}
    text = bench.page(found)
    assert "| net | replicas | 2 x 4 | 10.0 | 5.0 |  |  | 4.0 |\n" in text
    assert "| net | one copy | 2 x 4 | 12.0 | 6.0 | 1.200 | 1.200 to 1.500 | 3.0 |\n" in text
    assert "| net | one plan | 1 x 8 | 4.0 | 4.0 | 0.800 | 0.400 to 0.800 | 2.5 |\n" in text
    assert "| net | one learner | 1 x 4 | 5.0 | 5.0 | 0.500 | 0.500 to 0.500 | 2.0 |\n" in text
    assert "- net:4: d, commit c; 3 rounds, 1 s a side; load average 0.10 before and 1.90 after (its own)\n" in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nets", "lenet:8:1"], "must be MODEL:BATCH[:LEARNERS] with 2 learners or more, got lenet:8:1"),
        (["--nets", "lenet"], "must be MODEL:BATCH[:LEARNERS] with 2 learners or more, got lenet"),
        (["--pairs", "0"], "--pairs: must be at least 1, got 0"),
        (["--resume"], "--resume: needs --output FOLDER, whose copies.json it continues"),
    ],
)
def test_refusals(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_copies.py", *words])
    with pytest.raises(SystemExit):
        importlib.import_module("benchmarks.averaging.bench_copies").main()
    assert message in capsys.readouterr().err
