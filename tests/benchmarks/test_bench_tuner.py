"""bench_tuner.py's sides run, and say what their learners did; test_pages.py has what it makes of them."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.speed import bench_tuner as bench

ROOT = Path(__file__).parents[2]


def test_a_side_tells_what_its_learners_did():
    words = ("logistic", "--batch-size", "4", "--seconds", "0.1", "--wait", "0.1", "learners=2", "device=numpy")
    line = [sys.executable, "-m", "benchmarks.speed.tuner_side", *words]
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=720, check=True)
    found = json.loads(ended.stdout.splitlines()[-1])
    [phase] = found["phases"]
    assert (phase["name"], phase["learners"], phase["later"], found["changes"]) == ("all", [2], [2], 0)
    assert found["seconds_of_changes"] == []
    assert phase["images_per_second"] > 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_numbers_of_learners_take_turns_within_a_run(ranks):
    each = [[1] * ranks, [2] * ranks, [3, 1][:ranks]]
    options = argparse.Namespace(seconds=9.0, wait=0.1, set=["device=numpy"])
    place = bench.Place("", "logistic", ranks=ranks)
    found = bench.side(options, place, "--turns", json.dumps(each), "--rounds", "2", learners=1, seconds=0.1)
    assert [len(rates) for rates in found["turns"]] == [2, 2, 2]
    assert min(rate for rates in found["turns"] for rate in rates) > 0
    assert found["changes"] == 4  # there and back
