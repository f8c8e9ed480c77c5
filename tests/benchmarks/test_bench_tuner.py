"""What bench_tuner.py makes of its measurements, on figures that a hand can check; and that a side runs at all."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.speed import bench_tuner as bench

ROOT = Path(__file__).parents[2]
RATES = {(1,): [100.0, 110.0, 90.0], (2,): [200.0, 190.0, 210.0], (3,): [194.0, 194.0, 199.5], (4,): [150.0] * 3}


def start(bench: ModuleType, *learners: int, waited: float = 10.0, settled: bool = True) -> Any:
    return bench.Start(learners, waited, settled)


def test_a_choice_counts_as_its_learners_beside_the_best() -> None:
    starts = [start(bench, 2)] * 2 + [start(bench, 3, waited=12.0)]
    found = bench.choice(RATES, starts)
    assert (found.best, found.rate, found.ratio) == ((2,), 200.0, 1.0)
    assert found.close == 3  # by round 3 learners have 0.97, 1.02 and 0.95 of the images/s of two
    assert found.slowest == 12.0


def test_what_is_not_close() -> None:
    starts = [start(bench, 2, waited=31.0), start(bench, 2, settled=False), start(bench, 4), start(bench, 1)]
    found = bench.choice(RATES, starts)
    assert found.close == 0
    assert found.rate == (150.0 + 200.0) / 2
    assert found.ratio == 0.875


def test_unequal_ranks_count_with_what_they_reach() -> None:
    rates = {(1, 1): [100.0], (2, 2): [200.0], (2, 3): [210.0]}
    found = bench.choice(rates, [start(bench, 2, 3)])
    assert (found.best, found.rate, found.ratio, found.close) == ((2, 2), 210.0, 1.05, 1)


def test_ratios_are_of_pairs() -> None:
    assert bench.paired([10.0, 30.0, 50.0], [10.0, 10.0, 100.0]) == 1.0


def test_ends_in_words() -> None:
    assert bench.counted([[2], [3], [2], [2, 1]]) == "2 (2), 2 + 1, 3"


def phases(rates: tuple[float, float, float], *learners: list[int]) -> list[dict[str, Any]]:
    names = ("before", "slowed", "after")
    return [
        {"name": name, "images_per_second": rate, "learners": ks}
        for name, rate, ks in zip(names, rates, learners, strict=True)
    ]


def test_the_page() -> None:
    about = {
        "command": "python -m benchmarks.speed.bench_tuner", "date": "2026-11-21", "processor": "P", "cores": 2,
        "load": [0.1], "commit": "abc", "rounds": 3, "seconds": 8.0,
    }  # fmt: skip
    one, two = [1, 1], [2, 2]
    parts = {
        "choice": [{"place": "resnet32", "about": about | {"turns": "3 x 1 s"}, "each": [list(each) for each in RATES],
                    "rates": list(RATES.values()), "starts": [[[2], 9.0, True]] * 9 + [[[1], 5.0, True]]}],
        "slowed": [{"model": "resnet32", "before": "[1, 1]", "arms": {
            "auto": phases((100.0, 80.0, 101.0), one, [2, 1], one),
            "[1, 1]": phases((100.0, 50.0, 100.0), one, one, one),
            "[2, 2]": phases((125.0, 64.0, 100.0), two, two, two),
        }}],
        "sync": [{"about": "one rank", "model": "resnet32",
                  "rates": {"sma": [95.0, 90.0], "independent": [100.0] * 2}}],
        "assignment": [{"about": "alone", "model": "resnet32", "learners": 2,
                        "rates": {"fixed": [100.0], "first_come": [99.0]}}],
    }  # fmt: skip
    lines = bench.page({name: {"about": about, "found": found} for name, found in parts.items()}).splitlines()
    rows = [line for line in lines if line.startswith("|") and "---" not in line]
    assert rows[1] == (
        "| one rank | resnet32 | 100 | 200 | 194 | 150 | 2 (9), 1 | 200 | 1.00 | met | 9 of 10 | met | 9 |"
        " 2026-11-21, abc, turns 3 x 1 s |"
    )
    assert rows[3:6] == [
        "| before | 1 + 1 | 50% | 100 | 100 | 1.00 |  | 125 | 0.80 |",
        "| slowed | 2 + 1 | 33% | 80 | 50 | 1.60 | met | 64 | 1.25 |",
        "| after | 1 + 1 | 50% | 101 | 100 | 1.01 |  | 100 | 1.01 |",
    ]
    assert rows[7] == "| one rank | resnet32 | 92 | 100 | 0.925 | missed |"
    assert rows[9] == "| alone | resnet32 | 2 | 100 | 99 | 0.990 |"
    assert lines.count("    python -m benchmarks.speed.bench_tuner") == 4


def test_a_side_tells_what_its_learners_did() -> None:
    words = ("logistic", "--batch-size", "4", "--seconds", "0.1", "--wait", "0.1", "learners=2", "device=numpy")
    line = [sys.executable, "-m", "benchmarks.speed.tuner_side", *words]
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=720, check=True)
    found = json.loads(ended.stdout.splitlines()[-1])
    [phase] = found["phases"]
    assert (phase["name"], phase["learners"], phase["later"], found["changes"]) == ("all", [2], [2], 0)
    assert found["seconds_of_changes"] == []
    assert phase["images_per_second"] > 0


def test_places_that_are_not_measured_keep_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def side(options: Any, place: Any, *arguments: str, learners: object = "auto", **more: Any) -> Any:
        assert (place, more) == (bench.PLACES["resnet20"], {"seconds": 0.0 if learners == "auto" else 1.0})
        if learners == "auto":
            return {"phases": [{"learners": [5], "waited": 3.0, "settled": True}]}
        assert arguments == ("--turns", "[[1], [2], [3], [4], [5]]", "--rounds", "2")
        return {"turns": [[1.0, 1.0]] * 5}

    monkeypatch.setattr(bench, "side", side)
    options = argparse.Namespace(places=["resnet20"], starts=2, turns=2, turn=1.0)
    kept = [{"place": name} for name in ("four-ranks", "resnet20", "lenet")]
    found = bench.measure_choice(options, kept)
    assert [entry["place"] for entry in found] == ["lenet", "resnet20", "four-ranks"]
    assert (found[0], found[2]) == ({"place": "lenet"}, {"place": "four-ranks"})
    assert found[1]["starts"] == [[[5], 3.0, True]] * 2
    assert found[1]["about"]["turns"] == "2 x 1 s"


@pytest.mark.parametrize("ranks", [1, 2])
def test_numbers_of_learners_take_turns_within_a_run(ranks: int) -> None:
    each = [[1] * ranks, [2] * ranks, [3, 1][:ranks]]
    options = argparse.Namespace(seconds=9.0, wait=0.1, set=["device=numpy"])
    place = bench.Place("", "logistic", ranks=ranks)
    found = bench.side(options, place, "--turns", json.dumps(each), "--rounds", "2", learners=1, seconds=0.1)
    assert [len(rates) for rates in found["turns"]] == [2, 2, 2]
    assert min(rate for rates in found["turns"] for rate in rates) > 0
    assert found["changes"] == 4  # there and back


def test_what_changes_took(tmp_path: Path) -> None:
    from benchmarks.speed.tuner_side import seconds_of_changes

    events = [("start", None), ("learners", 0.5), ("train", None), ("execution", 7.0), ("learners", 0.25)]
    lines = [json.dumps({"event": event, "seconds": seconds}) for event, seconds in events]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert seconds_of_changes(tmp_path / "metrics.jsonl") == [0.5, 0.25]
