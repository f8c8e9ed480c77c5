"""Training on two nodes: an exchange in buckets beside computing has the bits of one behind it, resumed too."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.launching import run, well
from tests.nodes.hosts import Cluster, cluster, needs_nodes

NET = ["model.name=resnet20", "batch_size=4", "learners=2", "checkpoint.keep=9", "checkpoint.every=20 iterations",
       "stop.epochs=null", "update.schedule.name=constant", "evaluate.every=100", "checkpoint.best=false"]  # fmt: skip


def train(nodes: Cluster, ranks: list[int], out: Path, *settings: str, iterations: int = 40) -> Path:
    """The folder of the run."""
    command = nodes.mpirun(ranks, "-m", "mpibow.train", *NET, f"out={out}", f"stop.iterations={iterations}", *settings)
    well(run(command))
    return next(each for each in out.iterdir() if each.is_dir())


def same(one: Path, other: Path, iteration: int = 40) -> None:
    folders = [each / f"checkpoints/iteration-{iteration:010}" for each in (one, other)]
    names = sorted(each.name for each in folders[0].glob("*.safetensors"))
    assert "centre.safetensors" in names
    for name in names:
        a, b = (load_file(folder / name) for folder in folders)
        for key in a:
            np.testing.assert_array_equal(a[key].view(np.uint8), b[key].view(np.uint8), err_msg=f"{name} {key}")


@needs_nodes
@pytest.mark.parametrize(("ranks", "rule", "wire"), [([2, 1], "sma", "bf16"), ([1, 1], "ssgd", "float32")])
def test_buckets_change_no_bit(tmp_path, ranks, rule, wire):
    settings = (f"rule.name={rule}", f"wire={wire}")
    with cluster(2, "1gbit") as nodes:
        whole = train(nodes, ranks, tmp_path / "whole", *settings, "buckets=1")
        cut = train(nodes, ranks, tmp_path / "cut", *settings, "buckets=8")
        same(whole, cut)
        train(nodes, ranks, tmp_path / "resumed", *settings, "buckets=8", iterations=20)
        resumed = train(nodes, ranks, tmp_path / "resumed", *settings, "buckets=4", "--resume", "auto")
        same(whole, resumed)
