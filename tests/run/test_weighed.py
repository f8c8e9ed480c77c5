"""Weights of samples and of classes in training: the formulas, ranks, resuming, kinds of data, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.config import load_mapping
from mpibow.data import Array, ArrayData, Weighed, write_records
from mpibow.errors import CheckpointError, MpibowError
from mpibow.job.losses import balanced_weights
from mpibow.models.augmentation import Augmentation
from tests.data.owned import Pairs
from tests.refusals import refuses
from tests.run import tiny

COUNT, CLASSES, RATE = 24, 3, 0.5
STEP = {
    "batch_size": COUNT, "learners": 1, "device": "numpy", "precision": "float64", "rule": {"name": "ssgd"},
    "update": {"lr": RATE, "momentum": 0.0}, "stop": {"iterations": 1, "epochs": None}, "log": {"every": 1},
}  # fmt: skip
FEW = {"batch_size": 4, "learners": 2, "device": "numpy", "stop": {"epochs": 2}, "seed": 3}
GENERATOR = np.random.default_rng(5)
X = GENERATOR.standard_normal((COUNT, 4)).astype(np.float32)
LABELS = np.arange(COUNT) % CLASSES
Y = (X @ np.arange(CLASSES * 4).reshape(4, CLASSES)).astype(np.float32)
WEIGHT = GENERATOR.integers(0, 9, COUNT) / 4  # exact as float32, some of them 0
START = {"dense1.weight": GENERATOR.standard_normal((CLASSES, 4)), "dense1.bias": GENERATOR.standard_normal(CLASSES)}
BY_CLASS = np.array([0.5, 3.0, 1.0])


pytestmark = pytest.mark.usefixtures("here")


def net(image: mb.Tensor) -> mb.Tensor:
    return mb.dense(image, CLASSES)


def entropy_and_gradient(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Of each sample, (n,) and by logits (n, classes)."""
    likely = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return -likely[np.arange(len(labels)), labels], np.exp(likely) - np.eye(CLASSES)[labels]


def squares_and_gradient(output: Array, _: Array) -> tuple[Array, Array]:
    return ((output - Y) ** 2).mean(axis=1), 2 * (output - Y) / CLASSES


KEPT = LABELS != 1
DOUBLE = lambda output, target: 2.0 * mb.cross_entropy(output, target)  # noqa: E731


@pytest.mark.parametrize(
    ("target", "given", "each", "sums", "counts"),
    [
        (LABELS, {}, entropy_and_gradient, WEIGHT, WEIGHT),
        (LABELS, {"class_weight": {1: 3.0, 0: 0.5}}, entropy_and_gradient, *[WEIGHT * BY_CLASS[LABELS]] * 2),
        (LABELS, {"loss": {"weight": BY_CLASS.tolist()}}, entropy_and_gradient, *[WEIGHT * BY_CLASS[LABELS]] * 2),
        (LABELS % 2, {"class_weight": {1: 3.0}}, entropy_and_gradient, *[WEIGHT * (1 + LABELS % 2 * 2)] * 2),
        (LABELS % 2, {"loss": {"weight": [1, 3]}}, entropy_and_gradient, *[WEIGHT * (1 + LABELS % 2 * 2)] * 2),
        (LABELS, {"loss": {"ignore_index": 1}}, entropy_and_gradient, WEIGHT * KEPT, WEIGHT),
        (LABELS, {"loss": partial(mb.cross_entropy, ignore_index=1)}, entropy_and_gradient, *[WEIGHT * KEPT] * 2),
        (LABELS, {"loss": DOUBLE}, entropy_and_gradient, 2 * WEIGHT, WEIGHT),
        (Y, {"loss": "mse_loss"}, squares_and_gradient, WEIGHT, WEIGHT),
    ],
    ids=["classifier", "class_weight", "loss.weight", "2 of 3", "2 listed", "ignored", "counted", "twice", "numbers"],
)
def test_a_step_goes_down_the_weighted_mean(
    target: Array, given, each: Callable[..., tuple[Array, Array]], sums: Array, counts: Array
):
    """sum(sums * loss) / sum(counts), as PyTorch's losses have it by hand, and its gradient."""
    found = mb.fit(
        net, (X, target), (X, target), sample_weight=WEIGHT, weights=START, normalise="none", **given, **STEP
    )
    x = X.astype(np.float64)
    losses, gradients = each(x @ START["dense1.weight"].T + START["dense1.bias"], target)
    gradients = gradients * (sums / counts.sum())[:, None]
    trained = [event for event in found.history if event["event"] == "train"]
    assert trained[-1]["losses"][0] == pytest.approx((sums * losses).sum() / counts.sum(), rel=1e-12)
    for name, gradient in (("dense1.weight", gradients.T @ x), ("dense1.bias", gradients.sum(axis=0))):
        np.testing.assert_allclose(found.weights[name], START[name] - RATE * gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("power", [-160, -130, 126, 200])
def test_only_ratios_of_weights_matter(power):
    plain, scaled = (mb.fit(net, (X, LABELS), sample_weight=w, **FEW) for w in (WEIGHT, WEIGHT * 2.0**power))
    assert tiny.same_bits(scaled.weights, plain.weights)


def test_evaluation_is_unweighted(here: Path):
    found = mb.fit(
        net, (X, LABELS), (X, LABELS), validation=0.25, sample_weight=WEIGHT, class_weight="balanced",
        normalise="none", **{**STEP, "batch_size": 6},
    )  # fmt: skip
    losses, _ = entropy_and_gradient(found.predict(X).astype(np.float64), LABELS)
    assert found.summary.test_loss == pytest.approx(losses.mean(), rel=1e-6)
    np.testing.assert_array_equal(mb.load(found.summary.run).predict(X), found.predict(X))
    named = mb.fit(net, {"image": X, "target": Y}, loss="mse_loss", sample_weight=WEIGHT, **STEP)
    assert set(named.input["inputs"]) == {"image", "target"}  # no weights are wanted of what is evaluated later


def of_tiny(out: Path, rule: str = "sma", **settings):
    generator = np.random.default_rng(9)
    train = Weighed(tiny.TRAIN, generator.exponential(size=tiny.COUNT).astype(np.float32))
    return tiny.job(out, train=train, rule={"name": rule}, loss={"weight": "balanced"}, **settings)


@tiny.rules("sma", "ssgd")
def test_ranks_and_learners_are_alike(here: Path, rule):
    one, two = (
        tiny.run(of_tiny(here / str(ranks), rule, learners=4 // ranks, validation=0.2), ranks) for ranks in (1, 2)
    )
    assert tiny.distance(two.weights, one.weights) < 1e-10
    assert two.summary.validation_loss == pytest.approx(one.summary.validation_loss, rel=1e-10)
    without = tiny.train(here / "without", rule={"name": rule}, learners=4, validation=0.2)
    assert tiny.distance(without.weights, one.weights) > 1e-3


def test_fit_resumes_with_the_same_weights(here: Path):
    given = {"sample_weight": WEIGHT, "class_weight": {2: 4.0}, "checkpoint": {"every": "1 epoch"}}
    whole = mb.fit(net, (X, LABELS), **given, **FEW)
    cut = mb.fit(net, (X, LABELS), **given, **{**FEW, "stop": {"epochs": 1}})
    resumed = mb.fit(net, (X, LABELS), **given, **FEW, resume=cut.summary.run)
    assert tiny.same_bits(resumed.weights, whole.weights)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (WEIGHT, None, "was made with sample_weight, this run is without; pass the same sample_weight"),
        (None, WEIGHT, "was made without sample_weight, this run is with; pass the same sample_weight"),
        (WEIGHT, WEIGHT + 1, "was made with sample_weight, this run is with others; pass the same sample_weight"),
    ],
)
def test_a_resume_with_other_weights_is_refused(before: Array | None, now: Array | None, told):
    run = mb.fit(net, (X, LABELS), sample_weight=before, **{**FEW, "stop": {"epochs": 1}}).summary.run
    with tiny.unchanged(Path(run)), pytest.raises(CheckpointError, match=told):
        mb.fit(net, (X, LABELS), sample_weight=now, **FEW, resume=run)


@pytest.mark.parametrize("workers", [0, 2])
def test_items_are_weighed_as_arrays_are(workers):
    pairs, weight = Pairs(), np.arange(40) % 5
    x, y = pairs.columns()
    given = {"normalise": "none", "sample_weight": weight, **FEW}
    items = mb.fit(lambda image: mb.dense(image, 2), pairs, workers=workers, **given)
    arrays = mb.fit(lambda image: mb.dense(image, 2), (x, y), **given)
    assert tiny.same_bits(items.weights, arrays.weights)
    line = {"loss": lambda output, target: mb.mse_loss(output, target), "validation": 0.2}
    items, arrays = (
        mb.fit(lambda x: mb.reshape(mb.dense(x, 1), (-1,)), data, **line, **given) for data in (pairs, (x, y))
    )
    assert tiny.same_bits(items.weights, arrays.weights)


def own_losses(image: mb.Tensor, target: mb.Tensor) -> mb.Tensor:
    return mb.huber_loss(net(image), target)


def two_outputs(image: mb.Tensor) -> dict[str, mb.Tensor]:
    x = net(image)
    return {"number": x, "kind": x * 0.5}


TWO = {"loss": {"number": mb.mse_loss, "kind": mb.cross_entropy}, "loss_weights": {"kind": 0.25}}


@pytest.mark.parametrize(("device", "precision"), [("numpy", "float64"), ("onednn", "float32")])
@pytest.mark.parametrize(
    ("form", "data", "given"),
    [
        (net, (X, LABELS), {"normalise": "none"}),
        (own_losses, {"image": X, "target": Y}, {}),
        (two_outputs, {"image": X, "number": Y, "kind": LABELS}, TWO),
    ],
    ids=["classifier", "own losses", "two outputs"],
)
def test_a_sample_of_weight_2_is_there_twice(form, data, given, device, precision):
    """With the whole set in a batch; and one of weight 0 is not there."""
    if device == "onednn":
        pytest.importorskip("numba", reason="numba is not installed: pip install 'mpibow[cpu]'")
    often = np.repeat(np.arange(COUNT), (4 * WEIGHT).astype(int))
    more = {name: x[often] for name, x in data.items()} if isinstance(data, dict) else tuple(x[often] for x in data)
    settings = {**given, "weights": START, **STEP, "device": device, "precision": precision}
    weighted = mb.fit(form, data, sample_weight=4 * WEIGHT, **settings)
    repeated = mb.fit(form, more, **{**settings, "batch_size": len(often)})
    without = mb.fit(form, data, **settings)
    assert tiny.distance(weighted.weights, repeated.weights) < (1e-12 if precision == "float64" else 1e-5)
    assert tiny.distance(weighted.weights, without.weights) > 1e-3


def test_balanced_is_n_over_classes_times_count(here: Path):
    labels = np.repeat([0, 1, 3], [12, 9, 3])
    by_hand = [24 / (3 * 12), 24 / (3 * 9), 0.0, 24 / (3 * 3)]  # compute_class_weight of scikit-learn
    np.testing.assert_allclose(balanced_weights(labels, 4), by_hand, rtol=1e-15)
    wide = partial(mb.dense, units=4)
    found = [
        mb.fit(lambda image: wide(image), (X, labels), **given, **FEW)
        for given in (
            {"class_weight": "balanced"},
            {"loss": {"weight": "balanced"}},
            {"loss": {"weight": by_hand}},
            {"class_weight": dict(enumerate(by_hand))},
        )
    ]
    assert all(tiny.same_bits(each.weights, found[0].weights) for each in found[1:])
    without = mb.fit(lambda image: wide(image), (X, labels), **FEW)
    assert tiny.distance(without.weights, found[0].weights) > 1e-3
    train = ArrayData(tiny.TRAIN.images, np.where(tiny.TRAIN.labels == 1, 2, tiny.TRAIN.labels), classes=3)
    ignoring = {"ignore_index": 0}
    counted = tiny.train(here / "a", train=train, loss={"weight": "balanced", **ignoring}).weights
    alone = tiny.train(here / "b", train=train, loss={"weight": [0, 0, 1], **ignoring}).weights
    assert tiny.same_bits(counted, alone)


def test_the_config_of_a_run_has_the_class_weights():
    found = mb.fit(net, (X, LABELS), class_weight={np.int64(1): 3}, loss={"label_smoothing": 0.1}, **FEW)
    assert (
        found.config.loss
        == load_mapping({"loss": {"label_smoothing": 0.1, "weight": [1, 3, 1]}}, model_given=True, data_given=True).loss
    )
    balanced = mb.fit(net, (X, LABELS), class_weight="balanced", **FEW)
    assert balanced.config.loss.weight == "balanced"


def test_classes_of_a_folder_by_name():
    samples = zip(tiny.TRAIN.images, tiny.TRAIN.labels.tolist(), strict=True)
    write_records("bars", samples, classes=3, class_names=("top", "middle", "bottom"))
    by_name, by_number, balanced, numbers = (
        mb.fit(lambda image: tiny.plain(image), "bars", **given, **FEW)
        for given in (
            {"class_weight": {"middle": 4.0}}, {"class_weight": {1: 4.0}}, {"class_weight": "balanced"},
            {"loss": {"weight": [1.0, 1.0, 1.0]}},
        )
    )  # fmt: skip
    assert tiny.same_bits(by_name.weights, by_number.weights)
    assert tiny.same_bits(balanced.weights, numbers.weights)  # there are 19 of each
    assert tiny.distance(by_name.weights, numbers.weights) > 1e-3
    with refuses("class_weight: 'centre' is not a class of bars, which has classes 0 to 2: top, middle, bottom"):
        mb.fit(net, "bars", class_weight={"centre": 4.0}, **FEW)
    with refuses(
        "sample_weight: is for arrays and data sets with items, bars is neither; class_weight weighs its classes"
    ):
        mb.fit(net, "bars", sample_weight=np.ones(57), **FEW)


def test_the_check_takes_weights_too():
    report = mb.check(net, (X, LABELS), sample_weight=WEIGHT + 1, class_weight="balanced", batch_size=4)
    assert report.losses[-1] < report.losses[0]


REFUSED = [
    (
        {"sample_weight": WEIGHT[1:]},
        "sample_weight: must be one number for each of train's 24 samples, (24,), got (23,)",
    ),
    (
        {"sample_weight": np.where(np.arange(COUNT) == 5, -1.5, 1)},
        "sample_weight: must be finite and at least 0, got -1.5 for sample 5",
    ),
    (
        {"sample_weight": np.where(np.arange(COUNT) == 7, np.nan, 1)},
        "sample_weight: must be finite and at least 0, got nan for sample 7",
    ),
    ({"sample_weight": np.zeros(COUNT)}, "sample_weight: must be above 0 for some sample, got 0 for all 24"),
    ({"sample_weight": ["a"] * COUNT}, "sample_weight: must be integers, floats or bool, got <U1"),
    (
        {"sample_weight": WEIGHT, "augment": {"mixup": 0.2}},
        "data.augment.mixup: cannot be combined with sample_weight; leave one out",
    ),
    (
        {"class_weight": [1, 2, 3]},
        "class_weight: must be 'balanced' or weights by class such as {0: 1.0, 1: 5.0}, got [1, 2, 3]; "
        "a list is loss={'weight': [...]}",
    ),
    ({"class_weight": {3: 1.0}}, "class_weight: 3 is not a class of train, which has classes 0 to 2"),
    ({"class_weight": {1: -1}}, "class_weight: 1: must be a finite number of at least 0, got -1"),
    (
        {"class_weight": {1: 2.0}, "loss": {"weight": [1, 2, 3]}},
        "class_weight: cannot be combined with loss.weight, got [1.0, 2.0, 3.0]; leave one out",
    ),
    (
        {"class_weight": {1: 2.0}, "loss": "mse_loss"},
        "class_weight: is for a classifier that is trained on cross_entropy; give sample_weight, or a loss of your own "
        "with mpibow.cross_entropy(..., weight=...)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_what_does_not_fit_is_refused(here: Path, given, said):
    with refuses(said, MpibowError):
        mb.fit(net, (X, LABELS), **given, **FEW)
    assert not (here / "runs").exists()


def test_what_data_cannot_be_weighed():
    mb.fit(net, (X, LABELS), name="first", **FEW)
    with refuses("sample_weight: train has an array of that name; give that another name"):
        mb.fit(net, {"image": X, "sample_weight": WEIGHT}, loss="mse_loss", sample_weight=WEIGHT, **FEW)
    with refuses(
        "loss.weight: balanced counts the labels of arrays or of a folder of records, train is neither; give one "
        "number for each class"
    ):
        mb.fit(lambda image: mb.dense(image, 2), Pairs(), class_weight="balanced", **FEW)
    with refuses("loss.weight: balanced is for data with one class per sample; give one number for each class"):
        mb.fit(net, {"image": X, "target": LABELS}, loss={"weight": "balanced"}, **FEW)
    with refuses("data.augment.mixup: cannot be combined with loss.weight, got 'balanced'; leave one out"):
        tiny.job(Path("mixed"), loss={"weight": "balanced"}, augmentation=Augmentation(mixup=0.2))
