"""Whole runs on a simulated GPU: the numbers of the host, the same bits whatever the order that events allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpibow.comm.communicator import Communicator
from mpibow.comm.threads import on_threads
from mpibow.graph.graph import Tensor
from mpibow.job import Job
from mpibow.ops import add, batch_norm, conv2d, dense, dropout, flatten, global_avg_pool2d, max_pool2d, relu
from mpibow.summary import Trained
from mpibow.train import train
from tests.kernels.cuda.host import needs_compiler
from tests.run import tiny
from tests.simulated.gpu import simulated

pytestmark = needs_compiler


def lenet(image: Tensor) -> Tensor:
    y = max_pool2d(relu(conv2d(image, 4, 3, padding=1)), 2)
    return dense(relu(dense(flatten(y), 12)), tiny.CLASSES)


def resnet(image: Tensor) -> Tensor:
    x = relu(batch_norm(conv2d(image, 4, 3, padding=1, bias=False)))
    y = relu(batch_norm(conv2d(x, 4, 3, padding=1, bias=False)))
    y = batch_norm(conv2d(y, 4, 3, padding=1, bias=False))
    return dense(dropout(global_avg_pool2d(relu(add(y, x))), 0.2), tiny.CLASSES)


def work(out: Path, **settings: Any) -> Job:
    defaults = {"precision": "float32", "device": "numpy", "stop": {"epochs": None, "iterations": 24}}
    return tiny.job(out, **{"net": lenet, **defaults, **settings})


def on_gpu(job: Job, comm: Communicator, seed: int = 0, graphs: bool = True, resume: str | None = None) -> Trained:
    config = replace(job.config, device="cuda", graphs=graphs)
    opened = simulated(100 * seed + comm.rank, config.precision, graphs=graphs, shared=comm.size > 1)
    return train(replace(job, config=config, opened=opened), comm, resume=resume)


def run(job: Job, ranks: int = 1, **how: Any) -> Trained:
    found = on_threads(ranks, lambda comm: on_gpu(job, comm, **how))
    for other in found[1:]:
        assert tiny.same_bits(other.weights, found[0].weights)
    return found[0]


@pytest.mark.parametrize("rule", ["auto", "auto-late", "none", "ssgd"])
@pytest.mark.parametrize("learners", [1, 2])
def test_the_numbers_are_the_hosts(tmp_path: Path, rule: str, learners: int) -> None:
    settings = {"rule": tiny.RULES[rule], "learners": learners}
    host = tiny.run(work(tmp_path / "host", **settings))
    gpu = run(work(tmp_path / "gpu", **settings))
    assert tiny.distance(gpu.weights, host.weights) < 2e-4
    assert gpu.summary.iterations == host.summary.iterations
