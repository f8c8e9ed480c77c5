"""Settings of the loss, mixup and top-k accuracy in a run."""

from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.data import Array, ArrayData
from mpibow.errors import RecordError
from mpibow.models.augmentation import Augmentation
from tests.refusals import refuses
from tests.run import tiny


def logits_of(weights: dict[str, Array]) -> Array:
    """Of the test images, by the formulas, (20, 3)."""
    x = (tiny.images(20, seed=1)[0].reshape(20, -1) - tiny.TRAIN.mean[0]) / tiny.TRAIN.std[0]
    hidden = np.maximum(x @ weights["dense1.weight"].T + weights["dense1.bias"], 0)
    found: Array = hidden @ weights["dense2.weight"].T + weights["dense2.bias"]
    return found


def test_the_evaluation_loss_is_plain_whatever_the_training_loss(tmp_path):
    labels = tiny.images(20, seed=1)[1]
    found = tiny.train(
        tmp_path, loss={"label_smoothing": 0.3}, evaluate={"top_k": 2}, augmentation=Augmentation(mixup=1.0)
    )
    logits = logits_of(found.weights)
    likely = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    own = likely[np.arange(20), labels]
    assert found.summary.test_loss == pytest.approx(-np.log(own).mean(), rel=1e-9)
    assert found.summary.accuracy == (likely.argmax(axis=1) == labels).mean() > 0.5
    assert found.summary.top_k_accuracy == ((likely > own[:, None]).sum(axis=1) < 2).mean()
    assert found.summary.top_k == 2


def test_ignored_samples_are_left_out_of_an_evaluation(tmp_path):
    labels = tiny.images(20, seed=1)[1]
    found = tiny.train(tmp_path, loss={"ignore_index": 1}, evaluate={"batch_size": 7})
    guesses = logits_of(found.weights).argmax(axis=1)
    kept = labels != 1
    assert found.summary.accuracy == pytest.approx((guesses == labels)[kept].mean())
    assert (guesses[kept] != 1).all()  # that class was never learnt


@pytest.mark.parametrize(("device", "precision"), [("numpy", "float64"), ("onednn", "float32")])
def test_a_label_below_0_is_as_a_class_that_is_ignored(tmp_path, device, precision):
    if device == "onednn":
        pytest.importorskip("numba", reason="numba is not installed: pip install 'mpibow[cpu]'")
    how = {"device": device, "precision": precision, "evaluate": {"batch_size": 7, "top_k": 2}}
    named = tiny.train(tmp_path / "named", loss={"ignore_index": 1}, **how)
    for key, data in (("train", tiny.TRAIN), ("test", tiny.TEST)):
        labels = np.where(data.labels == 1, -100, data.labels)
        how[key] = ArrayData(data.images, labels, classes=3, ignore=-100, name=data.name)
    below = tiny.train(tmp_path / "below", loss={"ignore_index": -100}, **how)
    assert tiny.same_bits(below.weights, named.weights)
    assert below.summary.accuracy == named.summary.accuracy
    assert below.summary.top_k_accuracy == named.summary.top_k_accuracy
    assert below.summary.test_loss == named.summary.test_loss > 0


def test_labels_below_0_only_where_they_are_ignored():
    images = np.zeros((4, 2), np.float32)
    assert ArrayData(images, np.array([0, -100, 1, -100]), ignore=-100).classes == 2
    assert ArrayData(images, np.full(4, -100), ignore=-100).classes == 1
    for labels, given, message in (
        ([0, -100, 1, 2], None, "[0, 3), got -100 to 2; loss={'ignore_index': -100} leaves samples out"),
        ([0, -1, 1, -100], -100, "[0, 2), got -1 to 1; loss={'ignore_index': -1} leaves samples out"),
    ):
        with refuses(f"train: labels must lie in {message}", RecordError):
            ArrayData(images, np.array(labels), ignore=given, name="train")


def test_a_part_of_data_ignores_what_the_whole_does(here: Path):
    images, labels = tiny.images(40)
    found = mb.fit(
        tiny.plain, (images, np.where(labels == 2, -100, labels)), validation=0.2, loss={"ignore_index": -100},
        batch_size=4, learners=1, stop={"epochs": 1},
    )  # fmt: skip
    assert found.summary.validation_accuracy is not None


@pytest.mark.parametrize("name", ["mse_loss", "binary_cross_entropy_with_logits"])
def test_a_loss_of_numbers_compares_with_rows_of_classes(tmp_path, name):
    labels = tiny.images(20, seed=1)[1]
    found = tiny.train(tmp_path, loss=name, update={"lr": 0.02}, stop={"iterations": 120})
    logits, target = logits_of(found.weights), np.eye(3)[labels]
    losses = {
        "mse_loss": (logits - target) ** 2,
        "binary_cross_entropy_with_logits": np.logaddexp(0, logits) - target * logits,
    }
    assert found.summary.test_loss == pytest.approx(losses[name].mean(), rel=1e-9)
    assert found.summary.accuracy == (logits.argmax(axis=1) == labels).mean() > 0.5


def test_nothing_but_ignored_samples(tmp_path):
    pixels, _ = tiny.images(4)
    found = tiny.train(tmp_path, loss={"ignore_index": 1}, test=ArrayData(pixels, np.ones(4, int), classes=3))
    assert (found.summary.accuracy, found.summary.test_loss) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": {"ignore_index": 3}}, "loss.ignore_index: must be one of bars's 3 classes, got 3"),
        ({"evaluate": {"top_k": 4}}, "evaluate.top_k: must be at most the 3 classes of bars, got 4"),
        (
            {"loss": {"weight": [1, 2]}},
            "loss.weight: must be one number for each of bars's 3 classes, got [1.0, 2.0]",
        ),
        (
            {"loss": {"ignore_index": 2}, "augmentation": Augmentation(mixup=0.2)},
            "data.augment.mixup: cannot be combined with loss.ignore_index, got 2; leave one out",
        ),
    ],
)
def test_what_does_not_fit_the_data(tmp_path, settings, message):
    with refuses(message):
        tiny.job(tmp_path, **settings)
