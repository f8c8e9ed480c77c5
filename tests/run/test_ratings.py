"""Data that are no images: ratings of items by users, and a net that gives its own loss."""

from pathlib import Path

import numpy as np
import pytest

import mpibow
from mpibow.data import Array
from mpibow.errors import ConfigError, RecordError, ShapeError
from mpibow.graph import Tensor
from tests.refusals import refuses
from tests.run import tiny

USERS, ITEMS, FACTORS = 30, 20, 2
SETTINGS = {
    "batch_size": 4, "learners": 2, "update": {"lr": 0.05}, "stop": {"epochs": 40},
    "checkpoint": {"every": None},
}  # fmt: skip


def ratings(every: int = 4) -> tuple[dict[str, Array], dict[str, Array]]:
    """All pairs of users and items, rated by two tastes; every fourth is kept for the test."""
    generator = np.random.default_rng(0)
    user, item = (one.ravel() for one in np.indices((USERS, ITEMS)))
    tastes, kinds = generator.normal(size=(USERS, FACTORS)), generator.normal(size=(ITEMS, FACTORS))
    whole = {"user": user, "item": item, "rating": (tastes @ kinds.T)[user, item]}
    test = generator.permutation(len(user)) % every == 0
    return {key: array[~test] for key, array in whole.items()}, {key: array[test] for key, array in whole.items()}


LABELS = {
    "train": {"x": np.zeros((6, 2)), "y": np.arange(12).reshape(6, 2) % 6 - 1}, "test": None,
    "net": lambda x: mpibow.reshape(mpibow.dense(x, 8), (-1, 4, 2)),
}  # fmt: skip


def net(user: Tensor, item: Tensor, rating: Tensor) -> Tensor:
    return mpibow.matrix_factorisation(user, item, rating, users=USERS, items=ITEMS, factors=FACTORS)


def error_of(weights: dict[str, Array], data: dict[str, Array]) -> float:
    tables = weights["matrix_factorisation1.user"], weights["matrix_factorisation1.item"]
    found = (tables[0] @ tables[1].T)[data["user"], data["item"]]
    return float(((found - data["rating"]) ** 2).mean())


def test_a_net_takes_all_arrays_behind_a_wrapper_too(here: Path):
    def wrapped(*arguments, **named):
        return net(*arguments, **named)

    (train, _), settings = ratings(), {**SETTINGS, "stop": {"iterations": 2}}
    mpibow.fit(wrapped, train, **settings)
    with pytest.raises(
        ConfigError, match=r"give a loss, or a net of losses: net\(\) got an unexpected keyword argument 'day'$"
    ):
        mpibow.fit(net, {**train, "day": train["user"]}, **settings)


def test_ratings_are_learnt_and_those_of_other_pairs_foretold(here: Path, capsys):
    train, test = ratings()
    found = mpibow.fit(net, train, test, name="taste", **{**SETTINGS, "checkpoint": {"every": "10 epochs"}})
    summary = found.summary
    assert summary.test_loss == pytest.approx(error_of(found.weights, test), rel=1e-5)
    assert summary.test_loss < 0.1 * test["rating"].var()  # what guessing the mean would come to
    assert (summary.accuracy, summary.best_accuracy, summary.target) == (None, None, None)
    folder = Path(summary.run)
    evaluated, trained = (tiny.events(folder, kind) for kind in ("evaluate", "train"))
    assert evaluated[-1]["loss"] == summary.test_loss
    assert {event["accuracy"] for event in evaluated + trained} == {None}
    losses = [event["loss"] for event in evaluated]
    assert [event["best"] for event in evaluated] == [loss == min(losses[: n + 1]) for n, loss in enumerate(losses)]
    assert (folder / "checkpoints/best").exists()
    said = capsys.readouterr().err
    assert f"\ntest loss {summary.test_loss:.4f}\n" in said
    assert f"epoch 40.00: test loss {losses[-1]:.4f}\n" in said
    with refuses("predict: this net gives losses alone; train with fit(net, ..., loss=...), or use its weights"):
        found.predict(test["user"])


def test_any_arrays_by_name(here: Path):
    """Two images a sample and which is the brighter; with dropout, whose counter the pipeline fills."""
    left, right = np.random.default_rng(0).normal(size=(2, 90, 1, 3, 3))
    data = {"left": left, "right": right, "brighter": (left.sum(axis=(1, 2, 3)) < right.sum(axis=(1, 2, 3))) * 1}

    def compare(left: Tensor, right: Tensor, brighter: Tensor) -> Tensor:
        both = mpibow.concat(mpibow.flatten(left), mpibow.flatten(right))
        return mpibow.softmax_cross_entropy(mpibow.dense(mpibow.dropout(both, 0.1), 2), brighter)

    found = mpibow.fit(compare, data, data, **{**SETTINGS, "precision": "float64"})
    assert found.summary.test_loss < 0.2  # chance is 0.69
    assert found.weights["dense1.weight"].shape == (2, 18)


ONE = np.zeros(1)
REFUSED = {
    "of other lengths": (
        {"train": {"a": np.zeros((2, 3)), "b": np.zeros(3)}}, RecordError,
        "train: arrays must be (n, ...) of one n >= 1, got a (2, 3), b (3,)",
    ),
    "none": ({"train": {}}, RecordError, "train: arrays must be (n, ...) of one n >= 1, got none"),
    "a value": ({"train": {"a": 3.0}}, RecordError, "train.a: must be an array (n, ...), got a single value"),
    "large": (
        {"train": {"a": np.array([1 << 31])}}, RecordError,
        "train.a: must fit into int32, got 2147483648 to 2147483648",
    ),
    "the counter's name": (
        {"train": {"counter": ONE}}, RecordError,
        "train.counter: is the name of the random numbers' input; give it another",
    ),
    "a test of other arrays": (
        {"test": {"user": np.zeros(3, int)}}, ConfigError,
        "data.test: test has user () int32, data.train has user () int32, item () int32, rating () float32",
    ),
    "a test of images": (
        {"test": tiny.images()}, ConfigError,
        "test: the net takes 3 arrays; give {'user': ..., 'item': ..., 'rating': ...}, or a loss",
    ),
    "augmentation": (
        {"augment": {"flip": True}}, ConfigError,
        "data.augment: has no effect on train, which has user () int32, item () int32, rating () float32; "
        "leave it out",
    ),
    "an accuracy": (
        {"stop": {"accuracy": 0.9}}, ConfigError,
        "stop.accuracy: has no effect on train, which has user () int32, item () int32, rating () float32; "
        "leave it out",
    ),
    "smoothing": (
        {"loss": {"label_smoothing": 0.1}}, ConfigError,
        "loss: has no target to compare with: the net takes all of user, item, rating; leave it out "
        "where the net gives losses itself",
    ),
    "top k": (
        {"evaluate": {"top_k": 2}}, ConfigError,
        "evaluate.top_k: has no effect on train, which has user () int32, item () int32, rating () float32; "
        "leave it out",
    ),
    "a user that has no row": (
        {"train": {**ratings()[0], "user": ratings()[0]["user"] + 1}}, ConfigError,
        "train.user: must lie in [0, 30), got 1 to 30",
    ),
    "an item below 0": (
        {"test": {**ratings()[1], "item": ratings()[1]["item"] - 1}}, ConfigError,
        "test.item: must lie in [0, 20), got -1 to 18",
    ),
    "a word that has no row": (
        {"train": {"x": np.arange(5)}, "test": None, "net": lambda x: mpibow.mean(mpibow.embedding(x, 4, 2), axis=1)},
        ConfigError, "train.x: must lie in [0, 4), got 0 to 4",
    ),
    "a part of the words that has no row": (
        {"train": {"x": np.arange(10).reshape(5, 2)}, "test": None, "net": lambda x: mpibow.mean(
            mpibow.embedding(x[:, 1:], 8, 2), axis=(1, 2))},
        ConfigError, "train.x: must lie in [0, 8), got 1 to 9",
    ),
    "a place that is not there": (
        {"train": {"x": np.eye(5), "i": np.arange(5).reshape(5, 1)}, "test": None, "net": lambda x, i: mpibow.mean(
            mpibow.gather(x[:, :4], 1, i), axis=1)},
        ConfigError, "train.i: must lie in [0, 4), got 0 to 4",
    ),
    "numbers of rows that are scaled": (
        {"train": (np.arange(5).reshape(5, 1), np.arange(5)), "test": None, "net": lambda x: mpibow.dense(
            mpibow.flatten(mpibow.embedding(mpibow.cast(x, "int32"), 5, 2)), 5)},
        ConfigError, "data.normalise: the net takes its input as numbers of rows, which are not to be scaled; set it "
        "to none, in fit normalise='none'",
    ),
    "a label that is no class": (
        {**LABELS, "loss": "cross_entropy"},
        ConfigError, "train.y: must lie in [0, 4), the classes of the net, or be -100, got -1 to 4",
    ),
    "a label below 0, and weights": (
        {**LABELS, "loss": {"weight": [1.0] * 4, "ignore_index": 4}},
        ConfigError, "train.y: must lie in [0, 4), the classes of the net, or be 4, got -1 to 3",
    ),
    "a net without losses": (
        {"net": lambda user, item, rating: mpibow.dense(mpibow.flatten(rating), 3)}, ShapeError,
        "flatten1 (flatten of rating (4,)): input must have a batch axis and at least one more",
    ),
    "a net of the mean": (
        {"train": {"x": np.zeros((5, 3))}, "test": None, "net": lambda x: mpibow.dense(x, 2)}, ShapeError,
        "dense1: the net's output must be one loss a sample, (4,), got (4, 2)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(here: Path, case):
    change, error, message = REFUSED[case]
    train, test = ratings()
    arguments = {"net": net, "train": train, "test": test, **SETTINGS, **change}
    with tiny.unchanged(here), refuses(message, error):
        mpibow.fit(**arguments)
