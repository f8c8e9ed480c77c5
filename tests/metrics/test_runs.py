"""Metrics of runs: exact over the whole set whatever batches and ranks, reported everywhere, and what goes by them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.data import Array, ArrayData
from mpibow.errors import CallbackError, ConfigError
from mpibow.metrics.classes import IGNORED
from tests.refusals import refuses
from tests.run import tiny
from tests.run.test_loss import logits_of
from tests.run.test_supervised import table

LISTED = [
    "perplexity", {"name": "top_k", "k": 2}, "f1", "confusion", "mean_iou", {"name": "accuracy", "label": "right"},
]  # fmt: skip


def expected(weights: dict[str, Array], labels: Array) -> dict:
    """By scikit-learn, in float64, of all samples at once."""
    from sklearn import metrics

    kept = labels != IGNORED
    logits, labels = logits_of(weights)[kept], labels[kept]
    guesses = logits.argmax(axis=1)
    return {
        "perplexity": np.exp(metrics.log_loss(labels, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))),
        "top_k": metrics.top_k_accuracy_score(labels, logits, k=2),
        "f1": metrics.f1_score(labels, guesses, average="macro"),
        "confusion": metrics.confusion_matrix(labels, guesses),
        "mean_iou": metrics.jaccard_score(labels, guesses, average="macro"),
        "right": (guesses == labels).mean(),
    }


@pytest.mark.parametrize(
    ("kernels", "ranks", "batch"),
    [("numpy", 1, 20), ("numpy", 2, 7), ("numpy", 4, 100), ("onednn", 1, 1), ("onednn", 4, 3)],
)
def test_they_are_exact_over_the_whole_set(tmp_path, kernels, ranks, batch):
    precision, tolerance = "float64", 1e-12
    if kernels == "onednn":
        pytest.importorskip("numba", reason="numba is not installed: pip install 'mpibow[cpu]'")
        precision, tolerance = "float32", 1e-5
    images, labels = tiny.images(20, seed=1)
    labels = np.where(np.arange(20) % 6 == 5, IGNORED, labels)
    test = ArrayData(images, labels, classes=3, ignore=IGNORED, name="more bars")
    work = tiny.job(
        tmp_path, test=test, metrics=LISTED, evaluate={"batch_size": batch}, loss={"ignore_index": IGNORED},
        device=kernels, precision=precision, update={"lr": 0.01}, stop={"iterations": 12},
    )  # fmt: skip
    found = tiny.run(work, ranks)
    for name, value in expected(found.weights, labels).items():
        np.testing.assert_allclose(found.summary.test_metrics[name], value, rtol=tolerance, err_msg=name)
    assert found.summary.test_metrics["right"] == pytest.approx(found.summary.accuracy, rel=1e-12)


def line(features: mb.Tensor) -> mb.Tensor:
    return mb.reshape(mb.dense(features, 1), (-1,))


def two(features: mb.Tensor) -> dict[str, mb.Tensor]:
    return {"price": mb.reshape(mb.dense(features, 1), (-1,)), "kind": mb.dense(features, 2)}


BIAS = mb.Metric("bias", lambda output, target: (output - target).sum(), lambda sums: abs(sums) / 30, False)
SETTINGS = {"batch_size": 4, "learners": 2, "update": {"lr": 0.01}, "stop": {"epochs": 3}}


def test_they_are_reported_everywhere(here: Path):
    x, y = table(90)
    heard = []
    found = mb.fit(
        line, (x[:60], y[:60]), (x[60:], y[60:]), loss="mse_loss", metrics=["mae", "r2", BIAS],
        callbacks=[heard.append], evaluate={"batch_size": 7}, precision="float64", **SETTINGS,
    )  # fmt: skip
    predicted = found.predict(x[60:])
    wanted = {
        "mae": np.abs(predicted - y[60:]).mean(),
        "r2": 1 - ((predicted - y[60:]) ** 2).sum() / ((y[60:] - y[60:].mean(dtype=np.float64)) ** 2).sum(),
        "bias": abs((predicted - y[60:]).mean(dtype=np.float64)),
    }
    assert found.summary.test_metrics == pytest.approx(wanted, rel=1e-6)
    events = [event for event in found.history if event["event"] == "evaluate"]
    assert [list(event["metrics"]) for event in events] == [["mae", "r2", "bias"]] * 3
    assert events[-1]["metrics"] == found.summary.test_metrics
    told = [event for event in heard if isinstance(event, mb.Evaluated)]
    assert told[-1].metrics == found.summary.test_metrics
    with pytest.raises(TypeError):
        told[-1].metrics["mae"] = 0
    run = Path(found.summary.run)
    assert json.loads((run / "summary.json").read_text())["test_metrics"] == found.summary.test_metrics
    assert f"test loss {found.summary.test_loss:.4f}, mae {wanted['mae']:.4f}, r2 " in (run / "log.txt").read_text()


def test_each_of_several_outputs_has_its_own(here: Path):
    x, y = table(90)
    targets = {"price": y, "kind": (y > 1).astype(int)}
    both = mb.Metric("both", lambda output, target: len(output) + len(target), lambda sums: sums)
    found = mb.fit(
        two, ({"features": x}, targets), ({"features": x}, targets),
        loss={"price": mb.mse_loss, "kind": "cross_entropy"},
        metrics={"price": ["mae", BIAS], "kind": ["accuracy", {"name": "top_k", "k": 1}, "confusion"]},
        **SETTINGS,
    )  # fmt: skip
    assert list(found.summary.test_metrics) == [
        "price.mae", "kind.accuracy", "kind.top_k", "kind.confusion", "price.bias",
    ]  # fmt: skip
    assert found.summary.test_metrics["kind.top_k"] == found.summary.test_metrics["kind.accuracy"]
    outputs = found.predict({"features": x})
    right = (outputs["kind"].argmax(axis=1) == targets["kind"]).mean()
    assert found.summary.test_metrics["kind.accuracy"] == pytest.approx(right)
    with refuses("metrics[0]: the net gives price, kind; name one of them, as {name: mae, output: price}"):
        mb.fit(two, ({"features": x}, targets), loss={"price": mb.mse_loss}, metrics=["mae"], **SETTINGS)
    with refuses("metrics: kind.mae: output (4, 2), target (4,): must have one shape; mb.reshape the output"):
        mb.fit(
            two, ({"features": x}, targets), loss={"kind": "cross_entropy"}, metrics={"kind": ["mae"]}, **SETTINGS,
        )  # fmt: skip
    whole = mb.fit(
        two, ({"features": x}, targets), ({"features": x}, targets), loss={"price": mb.mse_loss}, metrics=[both],
        evaluate={"batch_size": 90}, **SETTINGS,
    )  # fmt: skip
    assert whole.summary.test_metrics == {"both": 4}


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (["mae2"], "metrics[0]: must be one of accuracy, top_k, perplexity, f1, mean_iou, confusion, mae, mse, rmse, "
         "r2, got 'mae2'; did you mean 'mae'?"),
        ([{"name": "top_k", "n": 5}], "metrics[0].n: is not a setting"),
        ([{"name": "f1", "average": "all"}], "metrics[0].average: must be one of macro, micro, binary, got 'all'"),
        (["mae", "mae"], "metrics: mae is there twice; give one another label, as {name: ..., label: ...}"),
        ([{"name": "mae", "label": "loss"}], "metrics: loss is the name of what every run reports; give another label"),
        ([3], "metrics[0]: must be a name, settings with a name, or an object with sums and close such as "
         "mpibow.Metric, got int"),
        ("mae", "metrics: must be a list, as ['mae'], got 'mae'"),
        ({"prise": ["mae"]}, "metrics[0].output: must be one of prediction, got 'prise'"),
        (["confusion"], "metrics: confusion: output (4,), target (4,): the target must have the output's shape without "
         "the axis of the classes"),
    ],
)  # fmt: skip
def test_what_is_refused(here: Path, metrics, said):
    x, y = table(90)
    with tiny.unchanged(here), pytest.raises(ConfigError) as caught:
        mb.fit(line, (x, y), (x, y), loss="mse_loss", metrics=metrics, **SETTINGS)
    assert str(caught.value) == said


@pytest.mark.parametrize("metric", ["accuracy", "f1", "mean_iou"])
@pytest.mark.parametrize("sides", [(), (3, 3)])
def test_probabilities_are_no_classes(here: Path, metric, sides):
    x, target = np.zeros((8, 2, *sides), np.float32), np.full((8, 2, *sides), 0.5, np.float32)
    with refuses(f"metrics: {metric}: takes classes, target has their probabilities; give a metric of your own"):
        mb.fit(lambda x: x * mb.parameter(()), (x, target), loss=mb.cross_entropy, metrics=[metric], **SETTINGS)


def test_a_net_of_losses_has_none(here: Path):
    x, y = table(90)

    def own(features: mb.Tensor, target: mb.Tensor) -> mb.Tensor:
        return mb.mse_loss(line(features), target)

    with pytest.raises(ConfigError, match="metrics: need outputs, this net gives losses alone; train with fit"):
        mb.fit(own, {"features": x, "target": y}, metrics=["mae"], **SETTINGS)


def test_one_that_raises_ends_the_run_under_its_name(here: Path):
    x, y = table(90)
    bad = mb.Metric("bad", lambda output, target: {}["nothing"], lambda sums: sums)
    with refuses("metric bad: KeyError: 'nothing'", CallbackError):
        mb.fit(line, (x, y), (x, y), loss="mse_loss", metrics=[bad], **SETTINGS)


def test_they_decide_when_to_stop_which_is_best_and_the_rate(here: Path):
    x, y = table(90)
    ends = mb.Metric("sign", lambda output, target: np.zeros(1), lambda sums: 1.0)  # which never improves
    still = {**SETTINGS, "stop": {"epochs": 9, "metric": "sign", "patience": 2}}
    found = mb.fit(line, (x, y), (x, y), loss="mse_loss", metrics=[ends], **still)
    assert found.summary.stopped == "stop.patience 2"
    again = mb.fit(
        line, (x, y), (x, y), loss="mse_loss", metrics=[ends], callbacks=[mb.EarlyStopping("sign", patience=2)],
        **{**SETTINGS, "stop": {"epochs": 9}},
    )  # fmt: skip
    assert again.summary.stopped == "callback EarlyStopping"
    worst = mb.fit(
        line, (x, y), validation=0.2, loss="mse_loss", metrics=[mb.Metric("up", _errors, lambda sums: sums)],
        checkpoint={"metric": "up"}, **SETTINGS,
    )  # fmt: skip
    values = [event["metrics"]["up"] for event in worst.history if event["event"] == "evaluate"]
    assert worst.summary.best_metric == max(values) == values[0] > values[-1]
    rate = {"lr": 0.01, "schedule": {"name": "plateau", "metric": "up", "patience": 0}}
    dropped = mb.fit(
        line, (x, y), validation=0.2, loss="mse_loss", metrics=[mb.Metric("up", _errors, lambda sums: sums)],
        **{**SETTINGS, "update": rate},
    )  # fmt: skip
    assert "up has been no better than" in (Path(dropped.summary.run) / "log.txt").read_text()


def _errors(output: Array, target: Array):
    return np.abs(output - target).sum()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"stop": {"metric": "maee", "below": 1}},
         "stop.metric: must be one of loss, training_loss, mae, got 'maee'; did you mean 'mae'?"),
        ({"checkpoint": {"metric": "training_loss"}},
         "checkpoint.metric: must be one of loss, mae, got 'training_loss'"),
    ],
)  # fmt: skip
def test_a_name_that_decides_must_be_there(here: Path, settings, said):
    x, y = table(90)
    with refuses(said):
        mb.fit(line, (x, y), (x, y), loss="mse_loss", metrics=["mae"], **{**SETTINGS, **settings})
    with refuses("metric: of EarlyStopping must be one of loss, got 'f1'"):
        mb.fit(line, (x, y), (x, y), loss="mse_loss", callbacks=[mb.EarlyStopping("f1")], **SETTINGS)


def test_resumed_runs_go_on_with_them(tmp_path):
    settings = {
        "metrics": ["perplexity", "confusion"], "checkpoint": {"every": "1 epoch", "metric": "perplexity"},
        "stop": {"epochs": None, "iterations": 60}, "validation": 0.3,
    }  # fmt: skip
    whole = tiny.run(tiny.job(tmp_path / "whole", **settings)).summary
    tiny.run(tiny.job(tmp_path / "cut", **{**settings, "stop": {"iterations": 33}}))
    again = tiny.run(tiny.job(tmp_path / "cut", **settings), resume="auto").summary
    assert again.best_metric == whole.best_metric
    assert again.validation_metrics == whole.validation_metrics
    assert whole.best_test_metrics.keys() == {"perplexity", "confusion"}
