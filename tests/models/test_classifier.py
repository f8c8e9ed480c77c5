"""The graphs around a net: what training has that evaluation has not, by the formulas."""

import numpy as np
import pytest

from mpibow.data import Array
from mpibow.graph import FLOAT, Kernels, Tensor, compile_plan, initial_weights, plan_layout
from mpibow.graph.bound import BoundPlan
from mpibow.kernels.numpy import OPERATORS
from mpibow.models.augmentation import Augmentation, ColourJitter
from mpibow.models.classifier import Net, classifier
from mpibow.models.losses import CrossEntropyLoss
from mpibow.ops import augment, cutout, dense, flatten, jitter, mix, mix_shares
from mpibow.ops.dropout import counter_of
from mpibow.ops.mixup import larger_shares
from mpibow.ops.philox import stream
from tests.ops.test_philox import plain as philox
from tests.outcome import outcome

BATCH, CLASSES, SHAPE = 5, 4, (2, 3, 3)
GENERATOR = np.random.default_rng(0)
IMAGES, LABELS = GENERATOR.integers(0, 256, (BATCH, *SHAPE)).astype(np.float64), np.array([3, 0, 1, 1, 2])
COUNTER = np.array([[9, 2, sample, 0] for sample in (4, 7, 1, 0, 8)], np.uint32)


def net(image: Tensor) -> Tensor:
    return dense(flatten(image), CLASSES)


def ran(training: bool, **options) -> BoundPlan:
    graph = classifier(net, SHAPE, "float64", (100.0, 120.0), (50.0, 60.0), **options)(BATCH, training)
    inputs = {"image": IMAGES, "label": LABELS, "counter": COUNTER}
    return outcome(graph, {name: inputs[name] for name in graph.inputs}, training=training)[0]


def log_likelihood(images: Array) -> Array:
    """By the formula, of the net's own weights: (batch, classes)."""
    layout = plan_layout(classifier(net, SHAPE, "float64")(BATCH))
    w = layout.views(initial_weights(layout, 1, "float64"))
    scaled = (images - np.reshape([100.0, 120.0], (2, 1, 1))) / np.reshape([50.0, 60.0], (2, 1, 1))
    logits = scaled.reshape(BATCH, -1) @ w["dense1.weight"].T + w["dense1.bias"]
    found = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return found


def cross_entropy(target: Array, images: Array = IMAGES) -> Array:
    found = -(target * log_likelihood(images)).sum(axis=1)
    return found


HARD = np.eye(CLASSES)[LABELS]


def test_smoothing_is_of_the_training_loss():
    options = {"loss": CrossEntropyLoss(label_smoothing=0.1)}
    np.testing.assert_allclose(ran(True, **options).outputs["loss"], cross_entropy(0.9 * HARD + 0.1 / CLASSES))
    np.testing.assert_allclose(ran(False, **options).outputs["loss"], cross_entropy(HARD))


def test_an_ignored_label_teaches_nothing():
    training, evaluation = (ran(training, loss=CrossEntropyLoss(ignore_index=1)) for training in (True, False))
    np.testing.assert_allclose(training.outputs["loss"], cross_entropy(HARD) * (LABELS != 1))
    np.testing.assert_allclose(evaluation.outputs["loss"], cross_entropy(HARD))


def test_a_nets_own_augmentation_is_of_training():
    def moved(image: Tensor) -> Tensor:
        x = cutout(jitter(augment(image, pad=1, flip=True), brightness=0.5), 2)
        return net(mix(x, mix_shares(counter_of(image), 0.3)))

    def logits(own: Net, training: bool) -> Array:
        graph = classifier(own, SHAPE, "float64")(BATCH, training)
        inputs = {"image": IMAGES, "label": LABELS, "counter": COUNTER}
        return outcome(graph, {name: inputs[name] for name in graph.inputs}, training=training)[0].outputs["logits"]

    assert np.abs(logits(moved, True) - logits(net, True)).min() > 0
    np.testing.assert_array_equal(logits(moved, False), logits(net, False))


def test_mixup_mixes_images_and_targets_alike():
    node = stream("mix_shares1")
    words = [philox((0, sample, 0, 2), (9, node))[0] for sample in COUNTER[:, 2].tolist()]
    share = larger_shares(0.3)[[word >> 20 for word in words]]
    assert (share >= 0.5).all()
    assert share.min() < 0.95  # else nothing would be seen here

    def mixed(x: Array) -> Array:
        own = share.reshape(-1, *[1] * (x.ndim - 1))
        result = own * x + (1 - own) * np.roll(x, -1, axis=0)
        return result

    target = 0.9 * mixed(HARD) + 0.1 / CLASSES
    options = {"augmentation": Augmentation(mixup=0.3), "loss": CrossEntropyLoss(label_smoothing=0.1)}
    np.testing.assert_allclose(ran(True, **options).outputs["loss"], cross_entropy(target, mixed(IMAGES)))
    evaluation = ran(False, **options)
    assert "counter" not in evaluation.inputs
    np.testing.assert_allclose(evaluation.outputs["loss"], cross_entropy(HARD))


WHOLE = tuple(GENERATOR.integers(80, 160, 18).astype(np.float64).tolist())  # a mean image
ALL = Augmentation(pad=1, crop=2, flip=True, cutout=2, jitter=ColourJitter(0.5, 0.5))


def words(node: str) -> Array:
    """The Philox block of every sample, (batch, 4)."""
    return np.array([philox((0, sample, 0, 2), (9, stream(node))) for sample in COUNTER[:, 2].tolist()])


def placed(images: Array) -> Array:
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = []
    for image, (top, left, flipped, _) in zip(padded, words("augment1"), strict=True):
        top, left = top * 4 >> 32, left * 4 >> 32
        window = image[:, top : top + 2, left : left + 2]
        windows.append(window[..., ::-1] if flipped >> 31 else window)
    return np.array(windows)


def coloured(images: Array) -> Array:
    y = []
    for image, (bright, contrast, *_) in zip(images, words("jitter1") / 2**32 + 0.5, strict=True):
        y.append(contrast * bright * image + (1 - contrast) * (bright * image).mean())
    return np.array(y)


def with_a_hole(images: Array) -> Array:
    y = images.copy()
    for image, (row, column, *_) in zip(y, words("cutout1") * 2 >> 32, strict=True):
        image[:, max(row - 1, 0) : row + 1, max(column - 1, 0) : column + 1] = 0
    return y


def seen(training: bool, mean: tuple[float, ...] = (100.0, 120.0)) -> Array:
    """What a net is given with ALL."""
    graph = classifier(flatten, SHAPE, "float64", mean, (50.0, 60.0), augmentation=ALL)(BATCH, training)
    plan = compile_plan(graph, plan_layout(graph), Kernels(OPERATORS), "float64", training=False)
    bound = plan.bind(np.zeros(0))
    for name, array in (("image", IMAGES), ("label", LABELS), ("counter", COUNTER)):
        if name in bound.inputs:
            bound.inputs[name][...] = array
    bound.run()
    return bound.outputs["logits"].reshape(BATCH, 2, 2, 2)


def scaled(images: Array, mean: tuple[float, ...]) -> Array:
    return (images - np.reshape(mean, (2, 3, 3) if len(mean) > 2 else (2, 1, 1))) / np.reshape([50, 60], (2, 1, 1))


def test_a_window_is_coloured_scaled_and_cut():
    mean = (100.0, 120.0)
    np.testing.assert_allclose(seen(True), with_a_hole(scaled(coloured(placed(IMAGES)), mean)), atol=1e-12)
    np.testing.assert_allclose(seen(False), scaled(IMAGES, mean)[:, :, :2, :2])


def test_a_mean_image_is_subtracted_where_its_pixels_lie_and_padded_with():
    expected = placed(scaled(coloured(IMAGES), WHOLE))
    assert (expected == 0).any()  # padding
    np.testing.assert_allclose(seen(True, WHOLE), with_a_hole(expected), atol=1e-12)
    np.testing.assert_allclose(seen(False, WHOLE), scaled(IMAGES, WHOLE)[:, :, :2, :2])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_keep_their_type_until_they_are_scaled(dtype):
    for training in (True, False):
        graph = classifier(net, SHAPE, dtype, augmentation=Augmentation(crop=2, flip=True))(BATCH, training)
        first, second = graph.nodes[:2]
        assert (first.op.kind, second.op.kind) == ("augment" if training else "centre_crop", "normalise")
        assert graph.tensors[first.name].dtype == dtype
        assert graph.tensors[second.name].dtype == FLOAT


@pytest.mark.parametrize("k", [2, 3, 4])
def test_top_k_is_of_evaluation(k):
    assert "top_k" not in ran(True, top_k=k).outputs
    ahead = (log_likelihood(IMAGES) > log_likelihood(IMAGES)[np.arange(BATCH), LABELS][:, None]).sum(axis=1)
    assert ran(False, top_k=k).outputs["top_k"].tolist() == (ahead < k).tolist()
