"""A learner: the slot is copied and released, the result is the plan's, and what is not finite is seen."""

import warnings
from functools import partial

import numpy as np
import pytest

from mpibow.data import Slot
from mpibow.graph import Array, Graph, Kernels, compile_plan, initial_weights, plan_layout
from mpibow.graph.layout import whole
from mpibow.kernels.numpy import OPERATORS
from mpibow.learn.learners import Learner, clip
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.ops import dense, softmax_cross_entropy
from tests.data.slots import image_slot

BUILD = classifier(partial(MODELS["mlp"], classes=3, hidden=[5]), (2, 3), "float")
IMAGE = np.dtype(np.float32)


def learner_of(graph: Graph) -> tuple[Learner, Array]:
    layout = plan_layout(graph)
    weights = initial_weights(layout, 1, "float32")
    gradient = np.zeros_like(weights)
    plan = compile_plan(graph, layout, Kernels(OPERATORS), "float32", training=True).bind(weights, gradient)
    return Learner(plan, gradient), weights


def slot_of(batch: int, seed: int = 0) -> Slot:
    slot = image_slot(batch, (2, 3), IMAGE)
    generator = np.random.default_rng(seed)
    slot.arrays["image"][...] = generator.standard_normal((batch, 2, 3))
    slot.arrays["label"][...] = generator.integers(0, 3, batch)
    return slot


def test_result_and_gradient():
    learner, _ = learner_of(BUILD(4))
    result = learner.compute(slot_of(4))
    gradient = learner.gradient.copy()
    plan, slot = learner.plan, slot_of(4)
    plan.inputs["image"][...], plan.inputs["label"][...] = slot.arrays["image"], slot.arrays["label"]
    plan.run()
    np.testing.assert_array_equal(learner.gradient, gradient)
    assert np.abs(gradient).max() > 0
    assert result.loss == pytest.approx(float(plan.outputs["loss"].sum()))
    assert result.loss > 1
    assert result.hits == plan.outputs["accuracy"].sum()
    assert result.finite


def test_hits():
    learner, weights = learner_of(BUILD(4))
    learner.plan.plan.layout.views(weights)["dense2.bias"][1] = 100  # always guesses 1
    slot = slot_of(4)
    slot.arrays["label"][...] = [1, 0, 1, 1]
    assert learner.compute(slot).hits == 3.0


def test_the_slot_is_copied_before_it_is_released():
    learner, _ = learner_of(BUILD(4))
    expected = learner.compute(slot_of(4))
    slot, released = slot_of(4), []

    def release() -> None:
        released.append(True)
        for array in slot.arrays.values():  # as the pipeline might, at once
            array.fill(0)

    slot.release = release
    result = learner.compute(slot)
    assert (result.loss, result.hits) == (expected.loss, expected.hits)
    assert released == [True]


def test_the_slot_is_released_before_the_plan_runs():
    learner, _ = learner_of(BUILD(4))
    events = []
    slot = slot_of(4)
    slot.release = lambda: events.append("release")
    run = learner.plan.run
    learner.plan.run = lambda: (events.append("run"), run())[1]
    learner.compute(slot)
    assert events == ["release", "run"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_seen_without_a_warning(value):
    learner, _ = learner_of(BUILD(4))
    slot = slot_of(4)
    slot.arrays["image"][2, 1, 1] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not learner.compute(slot).finite
    assert learner.compute(slot_of(4)).finite


def test_a_finite_loss_with_a_gradient_that_is_not():
    learner, _ = learner_of(BUILD(4))
    run = learner.plan.run

    def broken() -> None:
        run()
        learner.gradient[3] = np.nan

    learner.plan.run = broken
    result = learner.compute(slot_of(4))
    assert np.isfinite(result.loss)
    assert not result.finite


def test_a_graph_without_accuracy_or_counter():
    graph = Graph()
    logits = dense(graph.input("image", (2, 3)), 3)
    graph.output("loss", softmax_cross_entropy(logits, graph.input("label", (2,), "int32")))
    learner, _ = learner_of(graph)
    arrays = {"image": np.ones((2, 3), np.float32), "label": np.zeros(2, np.int32), "counter": np.zeros((2, 4))}
    result = learner.compute(Slot(arrays, lambda: None))
    assert result.hits == 0.0
    assert result.finite


def test_dropout_gets_the_slots_counter():
    learner, _ = learner_of(classifier(partial(MODELS["lenet"], classes=3), (1, 28, 28), "uint8")(1))
    slot = image_slot(1, (1, 28, 28))
    slot.arrays["image"][...] = np.random.default_rng(0).integers(0, 256, (1, 1, 28, 28))
    losses = []
    for epoch in (1, 2, 1):
        slot.arrays["counter"][0] = (5, epoch, 6, 7)
        losses.append(learner.compute(slot).loss)
    assert losses[0] == losses[2] != losses[1]


def test_a_norm_that_no_gradient_has_clips_none():
    """Its square is beyond what a float holds."""
    gradient = np.array([3.0, 4.0])
    assert clip(gradient, None, 1e300) == 25.0
    assert gradient.tolist() == [3.0, 4.0]


def test_clip_by_value_then_by_norm():
    gradient = np.array([3.0, -4.0, 0.5, 0.0])
    assert clip(gradient, None, None) == 25.25
    np.testing.assert_array_equal(gradient, [3, -4, 0.5, 0])
    assert clip(gradient, 2.0, None) == 8.25
    np.testing.assert_array_equal(gradient, [2, -2, 0.5, 0])
    assert clip(gradient, 1.0, 0.75) == 2.25  # (1, -1, 0.5) is 1.5 long
    np.testing.assert_allclose(gradient, [0.5, -0.5, 0.25, 0])
    clip(gradient, None, 10.0)
    np.testing.assert_allclose(gradient, [0.5, -0.5, 0.25, 0])


def test_clip_of_a_gradient_that_is_kept_as_factors():
    factor = [16, 16 + 64 * 48, 4, 48, 64]
    gradient = np.random.default_rng(0).standard_normal(factor[1] + 32)
    products = whole(gradient, np.array([factor]))
    square = float(np.dot(products, products))
    np.testing.assert_allclose(clip(gradient, None, None, [factor]), square, rtol=1e-12)
    np.testing.assert_allclose(clip(gradient, None, 0.5, [factor]), square, rtol=1e-12)
    np.testing.assert_allclose(whole(gradient, np.array([factor])), products * (0.5 / square**0.5), rtol=1e-12)
    gradient[17] = np.inf
    assert not np.isfinite(clip(gradient, None, 0.5, [factor]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_clipping_by_norm_does_not_hide_what_is_not_finite(bad):
    assert not np.isfinite(clip(np.array([1.0, bad]), None, 1.0))


def test_a_learner_clips_its_gradient():
    free, _ = learner_of(BUILD(4))
    free.compute(slot_of(4))
    tight, _ = learner_of(BUILD(4))
    tight = Learner(tight.plan, tight.gradient, clip_norm=0.01)
    assert tight.compute(slot_of(4)).finite
    assert np.linalg.norm(tight.gradient) == pytest.approx(0.01, rel=1e-5)
    np.testing.assert_allclose(tight.gradient, free.gradient * 0.01 / np.linalg.norm(free.gradient), rtol=1e-5)
