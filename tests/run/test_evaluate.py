"""Every test sample exactly once, whatever is cut into whatever; loss and accuracy as NumPy computes them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow.comm import Communicator, Single
from mpibow.config import load_mapping
from mpibow.data import Array, ArrayData
from mpibow.evaluate import on_host
from mpibow.graph import Plan, compile_plan, initial_weights, plan_layout
from mpibow.job.device import HOST
from mpibow.kernels import NUMPY
from mpibow.learn.scheduler import Scheduler
from mpibow.models import Build, Net
from mpibow.models.classifier import classifier
from mpibow.run.evaluate import Evaluation, Evaluator, due
from tests.comm.threads import on_threads
from tests.run import tiny


def built(batch: int, net: Net = tiny.plain) -> tuple[Plan, Build]:
    build = classifier(net, tiny.TRAIN.shape, "uint8", tiny.TRAIN.mean, tiny.TRAIN.std)
    layout = plan_layout(build(batch))
    return compile_plan(build(batch), layout, NUMPY, "float64", training=False), build


def statistics_of(plan: Plan) -> Array:
    """Means and variances as they may be after some training."""
    found: Array = np.random.default_rng(4).random(plan.statistics.size) + 0.5
    return found


def evaluate(
    count: int, batch: int, workers: list[int], net: Net = tiny.plain
) -> tuple[list[Evaluation], list[tuple[Array, Array, Array]]]:
    """Of `count` images on ranks with so many workers each: what every rank found, and all that `each` was given."""
    data, rows = ArrayData(*tiny.images(count), classes=3), list[tuple[Array, Array, Array]]()

    def body(comm: Communicator) -> Evaluation:
        (plan, build), scheduler = built(batch, net), Scheduler()
        centre = initial_weights(plan.layout, 3, "float64")
        before = centre.copy()
        try:
            evaluator = Evaluator(plan, build, None, HOST.bind_evaluation)
            found = evaluator(
                data,
                centre,
                statistics_of(plan),
                scheduler.run,
                lambda function: function(comm),
                lambda *row: rows.append(row),
                workers=workers[comm.rank],
            )
        finally:
            scheduler.close()
        assert np.array_equal(centre, before)
        return found

    return on_threads(len(workers), body), rows


def expected(count: int) -> tuple[float, float, Array]:
    """Loss, accuracy and logits (count, 3) by the formulas."""
    images, labels = tiny.images(count)
    layout = built(1)[0].layout
    w = layout.views(initial_weights(layout, 3, "float64"))
    mean, std = tiny.TRAIN.mean[0], tiny.TRAIN.std[0]
    x = (images.reshape(count, -1) - mean) / std
    hidden = np.maximum(x @ w["dense1.weight"].T + w["dense1.bias"], 0)
    logits = hidden @ w["dense2.weight"].T + w["dense2.bias"]
    likely = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss = -np.log(likely[np.arange(count), labels]).mean()
    return float(loss), float((logits.argmax(axis=1) == labels).mean()), logits


def check(count: int, batch: int, workers: list[int]) -> None:
    found, rows = evaluate(count, batch, workers)
    loss, accuracy, logits = expected(count)
    for one in found:
        assert one.count == count
        assert one.loss == pytest.approx(loss, rel=1e-9)
        assert one.accuracy == pytest.approx(accuracy, abs=1e-12)
        assert one.seconds > 0
    samples = np.concatenate([row[0] for row in rows])
    assert sorted(samples.tolist()) == list(range(count))
    labels = np.concatenate([row[1] for row in rows])
    assert np.array_equal(labels, tiny.images(count)[1][samples])
    np.testing.assert_allclose(np.concatenate([row[2] for row in rows]), logits[samples], rtol=1e-9, atol=1e-12)


@settings(max_examples=25)
@given(st.integers(1, 40), st.integers(1, 45), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_every_sample_once_for_any_numbers(count, batch, workers):
    check(count, batch, workers)


def test_nothing_is_dropped_out():
    (found,), _ = evaluate(20, 6, [2], tiny.dropping)
    assert found.loss == pytest.approx(expected(20)[0], rel=1e-9)


def test_the_running_statistics_are_taken():
    (found,), rows = evaluate(20, 6, [2], tiny.normed)
    plan = built(6, tiny.normed)[0]
    w = plan.layout.views(initial_weights(plan.layout, 3, "float64")) | plan.statistics.views(statistics_of(plan))
    x = (tiny.images(20)[0].reshape(20, -1) - tiny.TRAIN.mean[0]) / tiny.TRAIN.std[0]
    hidden = x @ w["dense1.weight"].T
    hidden = (hidden - w["batch_norm1.mean"]) / np.sqrt(w["batch_norm1.variance"] + 1e-5)
    hidden = np.maximum(hidden * w["batch_norm1.weight"] + w["batch_norm1.bias"], 0)
    logits = hidden @ w["dense2.weight"].T + w["dense2.bias"]
    samples = np.concatenate([row[0] for row in rows])
    np.testing.assert_allclose(np.concatenate([row[2] for row in rows]), logits[samples], rtol=1e-9, atol=1e-12)
    assert found.count == 20


def test_it_can_be_repeated():
    (plan, build), scheduler = built(6), Scheduler()
    evaluator, data = Evaluator(plan, build, None, HOST.bind_evaluation), ArrayData(*tiny.images(20), classes=3)
    call = lambda function: function(Single())  # noqa: E731
    centres = [initial_weights(plan.layout, seed, "float64") for seed in (1, 2, 1)]
    first, second, third = (
        evaluator(data, centre, statistics_of(plan), scheduler.run, call, workers=2).loss for centre in centres
    )
    scheduler.close()
    assert first == third != second


@pytest.mark.parametrize(("before", "after", "every", "expected"), [
    (0, 99, 1, False), (0, 100, 1, True), (90, 110, 1, True), (100, 110, 1, False), (100, 199, 1, False),
    (199, 200, 1, True), (0, 49, 0.5, False), (40, 50, 0.5, True), (100, 200, 2, True), (0, 199, 2, False),
    (0, 350, 1, True), (5, 6, 1e-300, True), (5, 6, 1e-310, True), (0, 200, 1e307, False),
])  # fmt: skip
def test_due(before, after, every, expected):
    assert due(before, after, 100, every) is expected


@given(st.integers(1, 3000), st.integers(1, 60), st.sampled_from([0.1, 0.25, 0.3, 1, 1.5, 2]))
def test_due_once_for_each_multiple(count, step, every):
    times = sum(due(at, at + step, count, every) for at in range(0, 40 * step, step))
    assert times <= 40 * step / (count * every) + 1e-9
    if step <= count * every:
        assert times == int(40 * step / (count * every))


@pytest.mark.parametrize(
    ("trained", "evaluated"),
    [
        (("cuda", "bf16"), ("auto", "float32")),
        (("auto", "tf32"), ("auto", "float32")),
        (("numpy", "float64"), ("numpy", "float64")),
        (("onednn", "float32"), ("onednn", "float32")),
    ],
)
def test_a_gpus_run_is_evaluated_on_the_host(trained, evaluated):
    device, precision = trained
    config = on_host(load_mapping({"device": device, "precision": precision}, model_given=True, data_given=True))
    assert (config.device, config.precision) == evaluated
