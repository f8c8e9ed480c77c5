"""Nets of outputs with losses beside them: one or several of each, trained, evaluated, predicted, loaded again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ConfigError, ShapeError
from tests.refusals import refuses

SETTINGS = {
    "batch_size": 4, "learners": 2, "update": {"name": "adamw", "lr": 1e-2}, "stop": {"epochs": 12},
}  # fmt: skip


def table(count: int = 200) -> tuple:
    x = np.random.default_rng(0).standard_normal((count, 5)).astype(np.float32)
    return x, x @ np.arange(5, dtype=np.float32) + 1


def regression(features: mb.Tensor) -> mb.Tensor:
    return mb.reshape(mb.dense(mb.relu(mb.dense(features, 16)), 1), (-1,))


def test_regression_is_trained_evaluated_predicted_and_loaded(here: Path):
    x, y = table()
    found = mb.fit(regression, (x, y), (x, y), loss=mb.mse_loss, **SETTINGS)
    predicted = found.predict(x, batch_size=7)
    assert predicted.shape == (200,)
    assert found.summary.test_loss == pytest.approx(np.mean((predicted - y) ** 2), rel=1e-4)
    assert found.summary.test_loss < 0.1 * y.var()
    np.testing.assert_allclose(mb.load(found.summary.run).predict(x), found.predict(x), rtol=1e-6)


def test_it_is_the_net_that_gives_the_loss_itself(here: Path):
    x, y = table(40)

    def own(features: mb.Tensor, target: mb.Tensor) -> mb.Tensor:
        return mb.mse_loss(regression(features), target)

    settings = {**SETTINGS, "stop": {"epochs": 2}}
    apart = mb.fit(regression, {"features": x, "target": y}, loss=mb.mse_loss, **settings)
    whole = mb.fit(own, {"features": x, "target": y}, **settings)
    assert apart.weights.keys() == whole.weights.keys()
    for name, array in whole.weights.items():
        np.testing.assert_array_equal(apart.weights[name], array)


def two(left: mb.Tensor, right: mb.Tensor) -> dict[str, mb.Tensor]:
    x = mb.relu(mb.dense(mb.concat(left, right, axis=1), 16))
    return {"total": mb.reshape(mb.dense(x, 1), (-1,)), "larger": mb.dense(x, 2)}


def test_several_inputs_and_outputs_with_weighted_losses(here: Path):
    x, _ = table()
    inputs = {"left": x[:, :2], "right": x[:, 2:4]}
    targets = {"total": x[:, :4].sum(axis=1), "larger": (x[:, 0] > x[:, 2]).astype(np.int32)}
    losses = {"total": mb.mse_loss, "larger": mb.cross_entropy}
    found = mb.fit(two, (inputs, targets), (inputs, targets), loss=losses, loss_weights={"larger": 0.5}, **SETTINGS)
    given = found.predict(inputs)
    assert {name: array.shape for name, array in given.items()} == {"total": (200,), "larger": (200, 2)}
    likely = given["larger"] - np.logaddexp.reduce(given["larger"], axis=1, keepdims=True)
    entropy = -likely[np.arange(200), targets["larger"]].mean()
    square = np.mean((given["total"] - targets["total"]) ** 2)
    assert found.summary.test_loss == pytest.approx(square + 0.5 * entropy, rel=1e-4)
    assert (given["larger"].argmax(axis=1) == targets["larger"]).mean() > 0.9
    with pytest.raises(ConfigError, match="predict: the net takes left, right; give them by name"):
        found.predict(x)
    with pytest.raises(ConfigError, match="predict: the net takes left, right, right is missing"):
        found.predict({"left": x[:, :2]})


def test_a_loss_of_ones_own_of_all_outputs(here: Path):
    x, y = table(40)

    def spread(features: mb.Tensor) -> dict[str, mb.Tensor]:
        return {"mean": regression(features), "log_scale": mb.reshape(mb.dense(features, 1), (-1,))}

    def gaussian(output, target) -> mb.Tensor:
        return (output["mean"] - target["target"]) ** 2 * mb.exp(output["log_scale"] * -2.0) + output["log_scale"]

    found = mb.fit(spread, (x, y), loss=gaussian, **{**SETTINGS, "stop": {"epochs": 1}})
    assert found.predict(x).keys() == {"mean", "log_scale"}


@pytest.mark.parametrize(
    ("net", "loss", "error", "said"),
    [
        (lambda other: other, mb.mse_loss, ConfigError, "other: the net takes it, the data have features, target"),
        (lambda features, target: target, mb.mse_loss, ConfigError, "loss: has no target to compare with"),
        (regression, {"a": mb.mse_loss}, ConfigError, "loss: a: needs a target of that name, the data have target"),
        (regression, {"target": mb.mse_loss}, ConfigError, "loss: target: is not an output; the net gives prediction"),
        (lambda features: 3, mb.mse_loss, ShapeError, "prediction: the net must give a tensor or tensors by name"),
        (lambda features: mb.reshape(features, (-1,)), mb.mse_loss, ShapeError, "the batch first"),
        (lambda features: {"loss": features}, mb.mse_loss, ShapeError, "loss: is the name of an output that mpibow"),
        (regression, lambda output, target: mb.reshape(output, (-1, 1)), ShapeError, "one loss a sample"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(here: Path, net, loss, error, said):
    x, y = table(20)
    with pytest.raises(error, match=said):
        mb.fit(net, {"features": x, "target": y}, loss=loss, **SETTINGS)
    with pytest.raises(ConfigError, match="loss_weights: must have names of losses"):
        mb.fit(regression, {"features": x, "target": y}, loss=mb.mse_loss, loss_weights={"b": 1.0}, **SETTINGS)


def test_the_settings_of_the_classifier_s_loss_still_go(here: Path):
    x, y = table(40)
    data = x, (y > 0).astype(int)
    found = mb.fit(lambda image: mb.dense(image, 2), data, loss={"label_smoothing": 0.1}, **SETTINGS)
    assert found.predict(x).shape == (40, 2)


@pytest.mark.parametrize(
    ("named", "function"),
    [
        ("mse_loss", mb.mse_loss),
        ({"name": "huber_loss", "delta": 0.5}, partial(mb.huber_loss, delta=0.5)),
        ({"prediction": "l1_loss"}, {"prediction": mb.l1_loss}),
    ],
)
def test_a_loss_by_its_name_is_the_function(here: Path, named, function):
    x, y = table(40)
    data = ({"features": x}, {"prediction": y}) if isinstance(named, dict) and "prediction" in named else (x, y)
    settings = {**SETTINGS, "stop": {"epochs": 2}}
    by_name, by_function = (mb.fit(regression, data, loss=loss, **settings) for loss in (named, function))
    assert all((by_name.weights[key] == by_function.weights[key]).all() for key in by_function.weights)


def test_pixels_are_ignored_by_a_setting_as_by_the_function(here: Path):
    x, ignored = table(48)[0].reshape(12, 1, 4, 5), {"ignore_index": 255}
    data = x, np.where(x[:, 0] > 0, 255, 2)
    by_name, by_function = (
        mb.fit(lambda image: mb.conv2d(image, 3, 1), data, data, loss=loss, **SETTINGS).summary.test_loss
        for loss in ({"name": "cross_entropy", **ignored}, partial(mb.cross_entropy, **ignored))
    )
    assert by_name == by_function


def test_class_weights_are_those_of_pytorch_s_mean(here: Path):
    x, y = table(60)
    label, weight = (y > 2).astype(int), (0.3, 2.0)
    settings = {**SETTINGS, "stop": {"epochs": 2}, "precision": "float64"}
    classified = mb.fit(
        lambda image: mb.dense(image, 2), (x, label), loss={"weight": weight}, normalise="none", **settings
    )
    apart = mb.fit(
        lambda image: mb.dense(image, 2), {"image": x, "label": label}, loss=partial(mb.cross_entropy, weight=weight),
        **settings,
    )  # fmt: skip
    for key in apart.weights:
        np.testing.assert_allclose(classified.weights[key], apart.weights[key], rtol=1e-12)
    with refuses("loss.weight: must be one number for each of train's 2 classes, got [1.0, 2.0, 3.0]"):
        mb.fit(lambda image: mb.dense(image, 2), (x, label), loss={"weight": [1, 2, 3]}, **settings)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ({"prediction": "mse"}, "loss.prediction.name: must be one of binary_cross_entropy_with_logits, cross_entropy, "
         "huber_loss, l1_loss, mse_loss, got 'mse'"),
        ({"prediction": 3}, "loss.prediction: must be a function, a name or settings with a name, got int"),
        ({"prediction": {"name": "mse_loss", "delta": 1}}, "loss.prediction.delta: is not a setting of mse_loss"),
        ({"name": "mse_loss", "reduction": "sum"}, "loss.reduction: is not a setting of mse_loss"),
    ],
)  # fmt: skip
def test_a_loss_that_is_none_is_refused(here: Path, loss, said):
    x, y = table(40)
    with refuses(said):
        mb.fit(regression, ({"features": x}, {"prediction": y}), loss=loss, **SETTINGS)


class Theirs:
    """Of PyTorch's modules, what tells one."""

    __module__ = "torch.nn.modules.mine"

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"net": Theirs()}, "net: is PyTorch's; give mpibow.from_torch(net, (example,))"),
        ({"loss": Theirs()}, "loss: is PyTorch's; give its name, as 'cross_entropy'"),
        ({"loss": partial(Theirs())}, "loss: is PyTorch's; give its name, as 'cross_entropy'"),
        ({"loss": {"a": Theirs()}}, "loss: is PyTorch's; give its name, as 'cross_entropy'"),
        ({"normalise": "pixel"}, "data.normalise: has no effect on train, which has features (5,) float32, "
         "target () float32; leave it out"),
        ({"image": {"size": 8}}, "data.image: is for encoded images, train has features (5,) float32, target () "
         "float32; "
         "leave it out"),
        ({"text": {"context": 8}}, "data.text: is for texts, train has features (5,) float32, target () "
         "float32; "
         "leave it out"),
        ({"augment": True}, "data.augment: must be a mapping of settings, got true"),
        ({"learning_rate": 0.1}, "learning_rate: is not a setting; write update.lr"),
    ],
)  # fmt: skip
def test_what_a_user_of_pytorch_may_type_is_refused_by_name(here: Path, given, said):
    x, y = table(40)
    with refuses(said):
        mb.fit(**{"net": regression, "train": (x, y), "loss": "mse_loss", **given, **SETTINGS})


@pytest.mark.parametrize(
    ("callbacks", "stopped"), [(lambda event: mb.STOP, "callback <lambda>"), (None, "stop.epochs 12")]
)
def test_a_callback_may_be_alone_or_none(here: Path, callbacks, stopped):
    x, y = table(40)
    found = mb.fit(regression, (x, y), (x, y), loss="mse_loss", callbacks=callbacks, **SETTINGS)
    assert found.summary.stopped == stopped
