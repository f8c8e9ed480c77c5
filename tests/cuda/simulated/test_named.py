"""Data that are no images on a simulated GPU: they lie there whole, and give the host's numbers."""

from pathlib import Path

import pytest

from mpibow.config import load_mapping
from mpibow.data import NamedArrays
from mpibow.job import Job, make_job
from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.test_whole_runs import run
from tests.run import tiny
from tests.run.test_ratings import net, ratings

pytestmark = needs_compiler


def job(out: Path) -> Job:
    settings = {
        "name": "run", "out": str(out), "batch_size": 4, "learners": 2, "precision": "float32", "device": "numpy",
        "update": {"lr": 0.05}, "stop": {"epochs": None, "iterations": 20}, "checkpoint": {"every": None},
    }  # fmt: skip
    train, test = (NamedArrays(part, name=name) for name, part in zip(("train", "test"), ratings(), strict=True))
    config = load_mapping(settings, model_given=True, data_given=True)
    return make_job("taste", config, net, train, test, normalise="channel")


@pytest.mark.parametrize("room", [1 << 30, 1 << 10])
def test_ratings_are_gathered_or_sent_and_learnt_alike(tmp_path, room):
    host = tiny.run(job(tmp_path / "host"))
    gpu = run(job(tmp_path / "gpu"), told=room)
    assert tiny.distance(gpu.weights, host.weights) < 1e-3
    assert gpu.summary.test_loss == pytest.approx(host.summary.test_loss, rel=1e-4)
    log = (tmp_path / "gpu/run/log.txt").read_text()
    assert ("pipeline: resident on the GPU: " in log) == (room > 1 << 20)
    assert (" train: read into the GPU's memory in 0." in log) == (room > 1 << 20)
    why = "matrix_factorisation1 (matrix_factorisation) has no form for fused learners"
    assert f" execution: streams, each learner on a stream of its own: {why}\n" in log
