"""What bench_tuner.py makes of its measurements, on figures that a hand can check; and that a side runs at all."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.speed import bench_tuner as bench

ROOT = Path(__file__).parents[2]
RATES = {(1,): [100.0, 110.0, 90.0], (2,): [200.0, 190.0, 210.0], (3,): [194.0, 194.0, 199.5], (4,): [150.0] * 3}


def start(bench: ModuleType, *learners: int, waited: float = 10.0, settled: bool = True):
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


def test_a_side_tells_what_its_learners_did() -> None:
    words = ("logistic", "--batch-size", "4", "--seconds", "0.1", "--wait", "0.1", "learners=2", "device=numpy")
    line = [sys.executable, "-m", "benchmarks.speed.tuner_side", *words]
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=720, check=True)
    found = json.loads(ended.stdout.splitlines()[-1])
    [phase] = found["phases"]
    assert (phase["name"], phase["learners"], phase["later"], found["changes"]) == ("all", [2], [2], 0)
    assert found["seconds_of_changes"] == []
    assert phase["images_per_second"] > 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_numbers_of_learners_take_turns_within_a_run(ranks: int) -> None:
    each = [[1] * ranks, [2] * ranks, [3, 1][:ranks]]
    options = argparse.Namespace(seconds=9.0, wait=0.1, set=["device=numpy"])
    place = bench.Place("", "logistic", ranks=ranks)
    found = bench.side(options, place, "--turns", json.dumps(each), "--rounds", "2", learners=1, seconds=0.1)
    assert [len(rates) for rates in found["turns"]] == [2, 2, 2]
    assert min(rate for rates in found["turns"] for rate in rates) > 0
    assert found["changes"] == 4  # there and back
