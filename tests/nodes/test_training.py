"""Training on several nodes: the bits of one node, the tuner on unequal nodes, and a slow link, which is reported."""

import json
from pathlib import Path

from tests.launching import mpirun, run, well
from tests.nodes.hosts import cluster, needs_nodes
from tests.run import tiny

WORDS = ("-m", "mpibow.train", "learners=1", "device=numpy", "name=run")
LONG = ("stop.epochs=null", "update.schedule.name=constant")


def entries(out: Path, event: str) -> list[dict]:
    lines = (out / "run/metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["event"] == event]


def evaluations(out: Path) -> list[tuple[object, ...]]:
    return [(entry["data"], entry["loss"], entry["accuracy"]) for entry in entries(out, "evaluate")]


@needs_nodes
def test_two_nodes_train_and_evaluate_as_one(tmp_path):
    words = (*WORDS, "stop.epochs=2")
    one = mpirun(2, *words, f"out={tmp_path}/one")
    with cluster(2, "1gbit") as nodes:
        two = run(nodes.mpirun([1, 1], *words, f"out={tmp_path}/two"))
        assert evaluations(tmp_path / "one") == evaluations(tmp_path / "two") != []
        again = run(nodes.mpirun([1, 1], *words, "stop.epochs=3", f"out={tmp_path}/two", "--resume", "auto"))
    assert [done.returncode for done in (one, two, again)] == [0, 0, 0], two.stderr + again.stderr
    for file in ("centre.safetensors", "rank-1.safetensors"):
        at = Path("run", "checkpoints", "iteration-0000000180", file)
        assert (tmp_path / "one" / at).read_bytes() == (tmp_path / "two" / at).read_bytes()
    assert "stopped by stop.epochs 3" in again.stderr


@needs_nodes
def test_learners_auto_on_unequal_nodes(tmp_path):
    auto = ("learners=auto", "tuner.most=2", "stop.iterations=1000", "evaluate.every=100")
    with cluster(2, "1gbit") as nodes:
        well(run(nodes.mpirun([1, 2], *WORDS, *LONG, *auto, f"out={tmp_path}")))
    wanted = [entry["wanted"] for entry in entries(tmp_path, "tuner")]
    assert wanted != []
    assert {len(counts) for counts in wanted} == {3}


@needs_nodes
def test_a_slow_link_is_reported_once(tmp_path):
    iterations = 800  # of 9,930 weights, 16 ms at this rate; the line comes after ten seconds
    with cluster(2, "20mbit") as nodes:
        well(run(nodes.mpirun([1, 1], *WORDS, *LONG, f"stop.iterations={iterations}", f"out={tmp_path}")))
    assert sum("learners wait for other ranks" in line for line in tiny.log(tmp_path)) == 1
