"""Losses that count labels, some batches having fewer than others: k learners are one large batch, sets are exact."""

from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.comm import Communicator
from mpibow.config import load_mapping
from mpibow.data import Array, NamedArrays
from mpibow.graph import Tensor
from mpibow.job import make_job
from mpibow.run.results import Trained
from mpibow.train import train
from tests.comm.threads import on_threads

CLASSES, LENGTH, FEATURES = 3, 4, 5
WEIGHT = (0.5, 1.0, 2.0)


def data(count: int, seed: int = 0) -> dict[str, Array]:
    """Sequences of labels of all lengths, many of them empty."""
    generator = np.random.default_rng(seed)
    label = generator.integers(0, CLASSES, (count, LENGTH))
    label[np.arange(LENGTH) >= generator.integers(0, LENGTH + 1, (count, 1))] = -100
    label[::3] = -100
    return {"x": generator.normal(size=(count, FEATURES)), "label": label}


def logits(x: Tensor) -> Tensor:
    return mb.reshape(mb.dense(mb.tanh(mb.dense(x, 40)), CLASSES * LENGTH), (-1, CLASSES, LENGTH))


def net(x: Tensor, label: Tensor) -> Tensor:
    return 0.5 * mb.cross_entropy(logits(x), label)


def wide(x: Tensor, label: Tensor) -> Tensor:
    """A layer whose gradient is kept as factors at batch 1."""
    return net(mb.tanh(mb.dense(mb.tanh(mb.dense(x, 48)), 128)), label)


def weighted(x: Tensor, label: Tensor) -> Tensor:
    return mb.cross_entropy(logits(x), label, weight=WEIGHT, label_smoothing=0.1)


def trained(ranks: int, learners: int, batch: int, build=net, **settings) -> Trained:
    config = load_mapping(
        {
            "learners": learners, "batch_size": batch, "precision": "float64", "device": "numpy",
            "rule": {"name": "ssgd"}, "update": {"lr": 0.5, "momentum": 0.9}, "stop": {"iterations": 9},
            "checkpoint": {"every": None}, "out": f"{ranks}-{learners}-{batch}", **settings,
        },
        model_given=True, data_given=True,
    )  # fmt: skip

    def body(comm: Communicator) -> Trained:
        sets = NamedArrays(data(96)), NamedArrays(data(37, 1))
        return train(make_job("counts", config, build, *sets, normalise="none"), comm)

    return on_threads(ranks, body)[0]


@pytest.mark.parametrize("build", [net, weighted])
@pytest.mark.parametrize(("ranks", "learners", "batch"), [(1, 4, 2), (2, 2, 2), (2, 1, 4), (1, 8, 1)])
def test_learners_are_one_large_batch(here: Path, ranks, learners, batch, build):
    whole, several = trained(1, 1, 8, build), trained(ranks, learners, batch, build)
    for key, array in whole.weights.items():
        np.testing.assert_allclose(several.weights[key], array, rtol=1e-10, atol=1e-13, err_msg=key)


@pytest.mark.parametrize("name", ["crossbow", "ssgd"])
def test_only_a_rule_in_force_multiplies_gradients(here: Path, name):
    """9 iterations are 0.75 epochs: until the other one takes over, a run is that of the first rule alone."""
    other = "ssgd" if name == "crossbow" else "local_sgd"
    alone, both, switched = (
        trained(1, 4, 2, rule={"name": name, **then}).weights
        for then in ({}, {"then": {"name": other, "epoch": 1}}, {"then": {"name": other, "epoch": 0.5}})
    )
    for key, array in alone.items():
        np.testing.assert_array_equal(both[key], array)
        assert (switched[key] != array).any()


def test_learners_of_factors_are_one_large_batch(here: Path):
    """At batch 1 the compiled kernels keep gradients of dense layers as factors; float32."""
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    settings = {"device": "auto", "precision": "float32"}
    config = load_mapping({"batch_size": 1, **settings}, model_given=True, data_given=True)
    if not len(make_job("counts", config, wide, NamedArrays(data(8)), None, normalise="none").layout.factors):
        pytest.skip("no libdnnl found: pip install -e '.[cpu]'")
    whole, several = trained(1, 1, 8, wide, **settings), trained(1, 8, 1, wide, **settings)
    for key, array in whole.weights.items():
        np.testing.assert_allclose(several.weights[key], array, rtol=1e-3, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(("ranks", "batch"), [(1, 5), (2, 4), (1, 64)])
@pytest.mark.parametrize("build", [net, weighted])
def test_evaluation_is_exact(here: Path, build, ranks, batch):
    """Over all labels that count, whatever batch and rank they fall to."""
    found = trained(ranks, 1, 2, build, evaluate={"batch_size": batch}, rule={"name": "sma"})
    x, label = (data(37, 1)[key] for key in ("x", "label"))
    x = x.astype(np.float32).astype(np.float64)
    w = found.weights
    hidden = np.tanh(x @ w["dense1.weight"].T + w["dense1.bias"])
    z = (hidden @ w["dense2.weight"].T + w["dense2.bias"]).reshape(-1, CLASSES, LENGTH)
    logs = z - np.log(np.exp(z).sum(1, keepdims=True))
    counts = label != -100
    target = np.moveaxis(np.eye(CLASSES)[np.where(counts, label, 0)], 2, 1) * counts[:, None]
    if build is net:
        expected = 0.5 * -(target * logs).sum() / counts.sum()
    else:
        weight = np.array(WEIGHT)[:, None]
        target = 0.9 * target + 0.1 / CLASSES * counts[:, None]
        expected = -(weight * target * logs).sum() / np.array(WEIGHT)[label[counts]].sum()
    assert found.summary.test_loss == pytest.approx(expected, rel=1e-12)
