"""The graphs around a net: what training has that evaluation has not, by the formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpibow.data.dataset import Array
from mpibow.graph.graph import Tensor
from mpibow.graph.kernel import Kernels
from mpibow.graph.layout import initial_weights, plan_layout
from mpibow.graph.plan import BoundPlan, compile_plan
from mpibow.kernels.beta import larger_shares
from mpibow.kernels.numpy import OPERATORS
from mpibow.kernels.philox import stream
from mpibow.models.classifier import classifier
from mpibow.models.settings import Augmentation, Loss
from mpibow.ops import dense, flatten
from tests.kernels.test_philox import plain as philox

BATCH, CLASSES, SHAPE = 5, 4, (2, 3, 3)
GENERATOR = np.random.default_rng(0)
IMAGES, LABELS = GENERATOR.integers(0, 256, (BATCH, *SHAPE)).astype(np.float64), np.array([3, 0, 1, 1, 2])
COUNTER = np.array([[9, 2, sample, 0] for sample in (4, 7, 1, 0, 8)], np.uint32)


def net(image: Tensor) -> Tensor:
    return dense(flatten(image), CLASSES)


def ran(training: bool, **options: Any) -> BoundPlan:
    graph = classifier(net, SHAPE, "float64", (100.0, 120.0), (50.0, 60.0), **options)(BATCH, training)
    layout = plan_layout(graph)
    weights = initial_weights(layout, 1, "float64")
    plan = compile_plan(graph, layout, Kernels(OPERATORS), "float64", training=training)
    bound = plan.bind(weights, np.zeros(layout.size) if training else None)
    for name, array in (("image", IMAGES), ("label", LABELS), ("counter", COUNTER)):
        if name in bound.inputs:
            bound.inputs[name][...] = array
    bound.run()
    return bound


def log_likelihood(images: Array) -> Array:
    """By the formula, of the net's own weights: (batch, classes)."""
    layout = plan_layout(classifier(net, SHAPE, "float64")(BATCH))
    w = layout.views(initial_weights(layout, 1, "float64"))
    scaled = (images - np.reshape([100.0, 120.0], (2, 1, 1))) / np.reshape([50.0, 60.0], (2, 1, 1))
    logits = scaled.reshape(BATCH, -1) @ w["dense1.weight"].T + w["dense1.bias"]
    found: Array = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return found


def cross_entropy(target: Array, images: Array = IMAGES) -> Array:
    found: Array = -(target * log_likelihood(images)).sum(axis=1)
    return found


HARD = np.eye(CLASSES)[LABELS]


def test_smoothing_is_of_the_training_loss() -> None:
    options = {"loss": Loss(smoothing=0.1)}
    np.testing.assert_allclose(ran(True, **options).outputs["loss"], cross_entropy(0.9 * HARD + 0.1 / CLASSES))
    np.testing.assert_allclose(ran(False, **options).outputs["loss"], cross_entropy(HARD))


def test_an_ignored_label_teaches_nothing() -> None:
    training, evaluation = (ran(training, loss=Loss(ignore=1)) for training in (True, False))
    np.testing.assert_allclose(training.outputs["loss"], cross_entropy(HARD) * (LABELS != 1))
    np.testing.assert_allclose(evaluation.outputs["loss"], cross_entropy(HARD))


def test_mixup_mixes_images_and_targets_alike() -> None:
    node = stream("mix_shares1")
    words = [philox((0, sample, 0, 2), (9, node))[0] for sample in COUNTER[:, 2].tolist()]
    share = larger_shares(0.3)[[word >> 20 for word in words]]
    assert (share >= 0.5).all()
    assert share.min() < 0.95  # else nothing would be seen here

    def mixed(x: Array) -> Array:
        own = share.reshape(-1, *[1] * (x.ndim - 1))
        result: Array = own * x + (1 - own) * np.roll(x, -1, axis=0)
        return result

    target = 0.9 * mixed(HARD) + 0.1 / CLASSES
    options = {"augmentation": Augmentation(mixup=0.3), "loss": Loss(smoothing=0.1)}
    np.testing.assert_allclose(ran(True, **options).outputs["loss"], cross_entropy(target, mixed(IMAGES)))
    evaluation = ran(False, **options)
    assert "counter" not in evaluation.inputs
    np.testing.assert_allclose(evaluation.outputs["loss"], cross_entropy(HARD))


@pytest.mark.parametrize("k", [2, 3, 4])
def test_top_k_is_of_evaluation(k: int) -> None:
    assert "top_k" not in ran(True, top_k=k).outputs
    ahead = (log_likelihood(IMAGES) > log_likelihood(IMAGES)[np.arange(BATCH), LABELS][:, None]).sum(axis=1)
    assert ran(False, top_k=k).outputs["top_k"].tolist() == (ahead < k).tolist()
