"""Batch normalisation against its definition in float64, in training and in evaluation, and through a whole run."""

from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow import ops
from mpibow.config import load_mapping
from mpibow.data import ArrayData
from mpibow.errors import ShapeError
from mpibow.graph import Array, Graph, Kernels, Shapes, compile_plan, plan_layout
from mpibow.job import make_job
from mpibow.job.checks import few_values
from mpibow.kernels.numpy import OPERATORS
from mpibow.models.classifier import classifier
from mpibow.run.describe import describe_job
from tests.kernels.cases import Bench, Case, name
from tests.kernels.operators import CASES
from tests.refusals import refuses

ALL = [case for case in CASES if case.op.kind == "batch_norm"]
CASES_HERE = [case for case in ALL if not case.op.frozen]
FROZEN = ops.BatchNorm(1e-3, 0.5, frozen=True)
KERNEL = OPERATORS[ops.BatchNorm]


def per_channel(x: Array) -> Array:
    """(n, c, ...) -> (c, everything else)."""
    return np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)


@pytest.mark.parametrize("case", CASES_HERE, ids=name)
def test_training_takes_the_batchs_statistics_and_moves_the_running_ones(case: Case):
    bench = Bench(case, KERNEL, "float64")
    before = {key: array.copy() for key, array in bench.statistics.items()}
    y = per_channel(bench.forward())
    rows, count = per_channel(bench.x[0]), per_channel(bench.x[0]).shape[1]
    normal = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + case.op.epsilon)
    np.testing.assert_allclose(y, bench.w["weight"][:, None] * normal + bench.w["bias"][:, None], rtol=1e-12)
    m = case.op.momentum
    expected = {"mean": rows.mean(1), "variance": rows.var(1) * count / (count - 1)}
    for key, value in expected.items():
        np.testing.assert_allclose(bench.statistics[key], (1 - m) * before[key] + m * value, rtol=1e-12)


@pytest.mark.parametrize("case", CASES_HERE, ids=name)
def test_a_learner_alone_subtracts_once_and_has_the_bits_of_several(case: Case, monkeypatch):
    bench = Bench(case, KERNEL, "float32")
    x, call, taken = bench.x[0], bench.call(backward=False), []
    subtract = np.subtract

    def counted(*arguments, out: Array) -> None:
        taken.append(out.size)
        subtract(*arguments, out=out)

    run = KERNEL.forward(call)
    monkeypatch.setattr(np, "subtract", counted)
    run()
    monkeypatch.undo()
    assert taken == [x.size]
    rows = x.reshape(*x.shape[:2], -1)
    count, merged = rows.shape[0] * rows.shape[2], np.zeros((2, x.shape[1]), np.float32)
    own = np.sum(rows, axis=(0, 2))
    own *= 1 / count
    merged[0] += own
    squares = rows - own[:, None]
    squares *= squares
    merged[1] += (own - merged[0]) ** 2 * np.float32(count)
    merged[1] += np.sum(squares, axis=(0, 2))
    inverse = np.reciprocal(np.sqrt(merged[1] * np.float32(1 / count) + np.float32(case.op.epsilon)))
    y = (rows - merged[0][:, None]) * inverse[:, None] * bench.w["weight"][:, None] + bench.w["bias"][:, None]
    np.testing.assert_array_equal(call.y, y.reshape(x.shape))


@pytest.mark.parametrize(
    ("case", "training"), [*((case, False) for case in ALL), (Case(FROZEN, ((3, 2, 4),)), True)], ids=str
)
def test_evaluation_and_a_frozen_norm_take_the_running_statistics_and_leave_them(case: Case, training):
    bench = Bench(case, KERNEL, "float64", training=training)
    before = {key: array.copy() for key, array in bench.statistics.items()}
    y, rows = per_channel(bench.forward()), per_channel(bench.x[0])
    normal = (rows - before["mean"][:, None]) / np.sqrt(before["variance"][:, None] + case.op.epsilon)
    np.testing.assert_allclose(y, bench.w["weight"][:, None] * normal + bench.w["bias"][:, None], rtol=1e-10)
    for key, array in before.items():
        np.testing.assert_array_equal(bench.statistics[key], array)


def test_one_value_a_channel_cannot_be_trained_on():
    op = ops.BatchNorm(1e-5, 0.1)
    expected = "training needs more than one value a channel, the variance of one is 0: use a larger batch"
    with refuses(expected, ShapeError):
        KERNEL.buffers(op, Shapes(((1, 3),), (1, 3), training=True))
    KERNEL.buffers(op, Shapes(((1, 3),), (1, 3), training=False))
    graph = Graph()
    x = graph.input("x", (1, 3))
    graph.output("loss", ops.softmax_cross_entropy(mb.batch_norm(mb.dense(x, 3)), graph.input("l", (1,), "int32")))
    with refuses(f"batch_norm1 (batch_norm): {expected}", ShapeError):
        compile_plan(graph, plan_layout(graph), Kernels(OPERATORS), "float64", training=True)


def test_a_frozen_norm_trains_on_one_value_a_channel():
    bench = Bench(Case(FROZEN, ((1, 3),)), KERNEL, "float64")
    y, inverse = bench.forward(), 1 / np.sqrt(bench.statistics["variance"] + FROZEN.epsilon)
    normal = (bench.x[0] - bench.statistics["mean"]) * inverse
    np.testing.assert_allclose(y, bench.w["weight"] * normal + bench.w["bias"], rtol=1e-12)
    bench.backward()
    np.testing.assert_allclose(bench.dx[0], bench.dy * bench.w["weight"] * inverse, rtol=1e-12)
    np.testing.assert_allclose(bench.dw["weight"], (bench.dy * normal).sum(0), rtol=1e-12)
    np.testing.assert_allclose(bench.dw["bias"], bench.dy.sum(0), rtol=1e-12)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_statistics_of_a_frozen_norm_stay_in_a_run(here: Path, frozen):

    def small(x):
        return mb.dense(mb.flatten(mb.batch_norm(mb.conv2d(x, 4, 3), frozen=frozen)), 3)

    fitted = mb.fit(small, data(24), data(12), learners=2, batch_size=1, stop={"iterations": 6})
    stay = (fitted.weights["batch_norm1.mean"] == 0).all() and (fitted.weights["batch_norm1.variance"] == 1).all()
    assert stay == frozen
    assert not (fitted.weights["batch_norm1.weight"] == 1).any()  # trained


def data(count: int) -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=count)
    images = generator.normal(labels[:, None, None, None], 0.5, size=(count, 1, 4, 4)).astype(np.float32)
    return images, labels


@pytest.mark.parametrize("batch", [1, 4])
def test_the_learners_of_a_rank_are_one_large_batch(here: Path, batch):
    """S-SGD, whose weights are alike: statistics, gradients, and what the next layers make of them.

    The last layer is frozen at first, so that the learners are bound to another plan on the way.
    """

    def synced(x):
        x = mb.relu(mb.batch_norm(mb.conv2d(x, 4, 3, padding=1), sync="rank"))
        return mb.dense(mb.flatten(mb.batch_norm(mb.conv2d(x, 3, 2), sync="rank")), 3)

    update = {"lr": 0.1, "groups": [{"match": "dense1.*", "freeze": {"epochs": 0.25}}]}
    settings = {"rule": {"name": "ssgd"}, "precision": "float64", "update": update}
    settings["stop"] = {"iterations": 7}
    several = mb.fit(synced, data(48), data(12), learners=3, batch_size=batch, out="several", **settings)
    one = mb.fit(synced, data(48), data(12), learners=1, batch_size=3 * batch, out="one", **settings)
    for key, array in one.weights.items():
        np.testing.assert_allclose(several.weights[key], array, rtol=1e-10, atol=1e-12, err_msg=key)


def test_few_values_a_channel_are_warned_of(here: Path, capsys):
    """Values are those of all learners where the rank's count; frozen norms count none."""

    def small(x):
        x = mb.flatten(mb.batch_norm(x))
        x = mb.batch_norm(mb.dense(x, 3), name="own")
        x = mb.batch_norm(mb.batch_norm(mb.dense(x, 3), sync="rank", name="shared"), frozen=True)
        return mb.dense(x, 3)

    build = classifier(small, (1, 4, 4), "float32")
    behind = (
        ": fewer than 4 values a channel in training, so their mean and variance are mostly noise; use a larger "
        "batch_size, or group_norm, batch_norm(sync='rank') or batch_norm(frozen=True) in the net"
    )
    assert few_values(build(2), 1) == f"warning: own (2), shared (2){behind}"
    assert few_values(build(2), 2) == f"warning: own (2){behind}"
    assert few_values(build(4), 1) == ""
    mb.fit(small, data(12), data(6), learners=2, batch_size=2, stop={"iterations": 1})
    assert f"warning: own (2){behind}\n" in capsys.readouterr().err
    job = make_job(
        "bn", load_mapping({"batch_size": 2}, model_given=True, data_given=True), small, ArrayData(*data(8)), None,
        normalise="none",
    )  # fmt: skip
    assert f"\nwarning: own (2){behind}\n" in describe_job(job, (2,), [1 << 30])


@pytest.mark.parametrize("given", [{"sync": "node"}, {"sync": "rank", "frozen": True}])
def test_what_cannot_be_synced(given):
    x = Graph().input("x", (2, 3))
    rule = "a frozen norm has nothing to sync" if "frozen" in given else "sync must be 'learner' or 'rank'"
    frozen = given.get("frozen", False)
    with refuses(f"batch_norm of x: {rule}, got frozen={frozen} and sync={given['sync']!r}", ShapeError):
        mb.batch_norm(x, **given)
