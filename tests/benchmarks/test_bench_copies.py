"""bench_copies.py: a short run of its four sides, and its page on figures that a hand can check."""

import json
import sys

from tests.launching import run, well

SIZE = 4 * (784 * 10 + 16)  # bytes of logistic's weights; its 10 biases are padded to 16


def test_a_short_run(tmp_path):
    """Two learners on one copy save a row of weights and one of momenta; --resume measures nothing twice."""
    command = [sys.executable, "-m", "benchmarks.averaging.bench_copies", "--device", "numpy", "--pairs", "2"]
    command += ["--seconds", "0.02"]
    command += ["--output", str(tmp_path), "--resume", "--nets", "logistic:2"]
    done = well(run(command))
    first = json.loads((tmp_path / "copies.json").read_text())
    made = first["nets"]["logistic:2"]
    assert list(made["rounds"]) == ["replicas", "one copy", "one plan", "one learner"]
    assert all(len(each) == 2 and min(each) > 0 for each in made["rounds"].values())
    held = made["bytes"]
    assert held["replicas"] == 2 * held["one learner"]
    assert held["replicas"] - held["one copy"] == 2 * SIZE
    assert held["one learner"] < held["one plan"] < held["replicas"]
    assert done.stdout == (tmp_path / "copies.md").read_text()
    well(run([*command, "logistic:1:3"]))
    then = json.loads((tmp_path / "copies.json").read_text())["nets"]
    assert list(then) == ["logistic:2", "logistic:1:3"]
    assert then["logistic:1:3"]["bytes"]["replicas"] == 3 * then["logistic:1:3"]["bytes"]["one learner"]
    assert then["logistic:2"] == made
