"""Optimisers with states and counts of their own on simulated GPUs: the host's numbers, resumed the same bits."""

from pathlib import Path

import numpy as np
import pytest

from mpibow.errors import ShapeError
from mpibow.run.checkpoint import read_arrays
from mpibow.run.session import Session
from tests.cuda.kernels.host import needs_compiler, prepared
from tests.cuda.simulated.test_whole_runs import lenet, resnet8, run, work
from tests.run import tiny
from tests.run.test_resume import copy, point

pytestmark = needs_compiler
prepare = prepared("flat.cu", "elementwise.cu", "loss.cu", "pool.cu")
ADAMW = {
    "name": "adamw", "lr": 0.01, "weight_decay": 0.1, "l1": 0.001, "half_life": [None, 100],
    "groups": [{"match": "*.bias", "lr_scale": 0.5}],
}  # fmt: skip
FEW = {"epochs": None, "iterations": 12}


def adamw(folder: Path, **settings):
    return work(folder, **{"net": lenet, "update": ADAMW, "learners": 2, "stop": FEW, **settings})


def check(tmp_path: Path, ranks: int = 1, execution: str = "streams", **settings) -> None:
    """On a GPU the host's numbers; resumed half-way the same bits."""
    settings = {"checkpoint": {"every": "6 iterations", "keep": 100, "best": False}, **settings}
    host = tiny.run(adamw(tmp_path / "host", **settings), ranks)
    settings["execution"] = execution
    gpu = run(adamw(tmp_path / "gpu", **settings), ranks)
    assert tiny.distance(gpu.weights, host.weights) < 1e-3
    again = copy(tmp_path / "gpu", tmp_path / "again")
    resumed = run(adamw(again, **settings), ranks, resume=str(point(again, 6)))
    assert tiny.same_bits(gpu.weights, resumed.weights)


@pytest.mark.parametrize(
    ("rule", "ranks", "execution"),
    [("auto", 1, "fused"), ("ssgd", 1, "streams"), ("crossbow-3", 2, "streams"), ("independent", 1, "streams")],
)
def test_the_numbers_are_the_hosts(tmp_path, rule, ranks, execution):
    check(tmp_path, ranks, execution, rule=tiny.RULES[rule])
    learners = read_arrays(point(tmp_path / "again", 12), "rank-0")["updates"].tolist()
    assert learners == [12, 12]


def test_a_step_that_the_losss_scale_has_cost_is_not_counted(tmp_path, monkeypatch):
    """Of a scale that overflows first, learners make a few steps less than there are iterations, both alike."""
    seen = []
    save = Session.finish

    def finish(self: Session, stop: str):
        found = save(self, stop)
        seen.append(np.array(self.replicas.updates))
        return found

    monkeypatch.setattr(Session, "finish", finish)
    run(adamw(tmp_path, precision="fp16", on_nan="reset"), scale=2.0**40)
    assert 0 < seen[0].min() <= seen[0].max() < 12


@pytest.mark.parametrize("execution", ["streams", "fused"])
def test_frozen_layers_are_the_hosts(tmp_path, execution):
    """A frozen batch norm below all that is trained normalises by its running statistics."""
    frozen = [{"match": name, "freeze": True} for name in ("conv1.*", "batch_norm1.*", "conv2.*", "batch_norm2.*")]
    check(tmp_path, execution=execution, net=resnet8, update={**ADAMW, "groups": frozen})


def test_a_gpu_has_no_gradients_of_a_frozen_norm(tmp_path):
    frozen = [{"match": "batch_norm2.*", "freeze": True}]
    with pytest.raises(ShapeError, match=r"^relu2 .* has no gradients of a frozen batch norm: "):
        run(adamw(tmp_path, net=resnet8, update={**ADAMW, "groups": frozen}))


@pytest.mark.parametrize(
    ("rule", "ranks", "execution"),
    [("auto", 1, "streams"), ("crossbow-3", 2, "streams"), ("ssgd", 1, "fused"), ("easgd", 1, "fused")],
)
def test_layers_are_trained_from_an_epoch_on(tmp_path, rule, ranks, execution):
    """Two ranks are resumed behind it, one is before."""
    thawed = [{"match": name, "freeze": {"epochs": 1}} for name in ("conv1.*", "batch_norm1.*")]
    check(tmp_path, ranks, execution, net=resnet8, update={**ADAMW, "groups": thawed}, rule=tiny.RULES[rule])


@pytest.mark.parametrize(("rule", "ranks"), [("auto", 1), ("ssgd", 1), ("crossbow-3", 2)])
def test_an_optimiser_of_a_group_is_the_hosts(tmp_path, rule, ranks):
    """Two parts of the rows, each with states of its own."""
    head = {"match": "dense1.*", "lr_scale": 0.5, "update": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}
    check(tmp_path, ranks, net=resnet8, update={**ADAMW, "groups": [head]}, rule=tiny.RULES[rule])
