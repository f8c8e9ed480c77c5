"""When a run ends: each limit, a metric's median, its threshold and its patience, and what is refused."""

import json
from dataclasses import asdict

import pytest

from mpibow.config import build
from mpibow.config.course import Stop, Watched
from tests.refusals import refuses


def first(stop: Stop, values: list[float]) -> tuple[int, str] | None:
    """After which value the run ends, and why; the state goes through JSON between them, as a checkpoint's does."""
    state = Watched()
    for n, value in enumerate(values):
        state = build(
            Watched, json.loads(json.dumps(asdict(stop.follow(state, value, rises=stop.metric == "accuracy"))))
        )
        if why := stop.reached(n, 0, 100, accurate=False, watched=state):
            return n, why
    return None


def test_a_threshold():
    assert first(Stop(metric="accuracy", above=0.9), [0.5, 0.9, 0.95]) == (1, "stop.above 0.9")
    assert first(Stop(metric="loss", below=0.1), [0.5, 0.2, 0.1]) == (2, "stop.below 0.1")
    assert first(Stop(metric="training_loss", above=3.0), [2.0, 4.0]) == (1, "stop.above 3")  # it has diverged
    assert first(Stop(metric="accuracy", above=0.9), [0.5, float("nan")]) is None


def test_crossbow_s_measure():
    """The median of the last five accuracies: neither one that is high, nor fewer than five."""
    stop = Stop(metric="accuracy", above=0.9, median=5)
    assert first(stop, [1.0, 1.0, 1.0, 1.0, 0.0]) == (4, "stop.above 0.9")
    assert first(stop, [0.0, 0.0, 0.0, 1.0, 1.0, 0.9]) == (5, "stop.above 0.9")
    assert first(stop, [1.0, 0.0, 0.0, 1.0, 0.0, 0.9, 0.0]) is None
    assert first(Stop(metric="loss", below=1.0, median=2), [1.5, 0.5]) == (1, "stop.below 1")  # of two: their mean


def test_patience():
    stop = Stop(metric="loss", patience=2)
    assert first(stop, [1.0, 0.9, 0.95, 0.9]) == (3, "stop.patience 2")
    assert first(stop, [1.0, 0.9, 0.95, 0.89, 0.9]) is None
    assert first(Stop(metric="loss", patience=2, min_delta=0.1), [1.0, 0.95, 0.9]) == (2, "stop.patience 2")
    assert first(Stop(metric="accuracy", patience=1, min_delta=0.1), [0.1, 0.3, 0.35]) == (2, "stop.patience 1")
    assert first(Stop(metric="loss", patience=2), [float("nan")] * 2) == (1, "stop.patience 2")
    assert first(Stop(metric="loss", patience=2, median=3), [1.0, 5.0, 2.0, 2.0, 9.0]) == (4, "stop.patience 2")
    assert first(Stop(metric="loss", patience=1, below=0.5), [1.0, 0.4]) == (1, "stop.below 0.5")


def test_another_metric_or_median_begins_anew():
    state = Stop(metric="loss", below=0.5).follow(Watched(), 0.1)
    assert Stop(metric="loss", below=0.5).met(state)
    assert not Stop(metric="accuracy", above=0.05).met(state)
    assert not Stop(metric="loss", below=0.5, median=2).met(state)
    assert Stop(metric="accuracy", above=0.5).follow(state, 0.6) == Watched("accuracy", (0.6,), 0.6, 0)


@pytest.mark.parametrize(
    ("stop", "target"),
    [
        (Stop(), ("accuracy", None)),
        (Stop(accuracy=0.9), ("accuracy", 0.9)),
        (Stop(accuracy=0.9, metric="loss", below=0.1), ("accuracy", 0.9)),
        (Stop(metric="loss", patience=3), ("accuracy", None)),
        (Stop(metric="accuracy", above=0.8, median=5), ("median of 5: accuracy above", 0.8)),
        (Stop(metric="training_loss", below=0.5), ("training_loss below", 0.5)),
    ],
)
def test_targets(stop: Stop, target):
    assert stop.target == target


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": None}, "stop: one of epochs, accuracy, minutes, iterations, metric must be set, got null for all"),
        ({"above": 0.5},
         "stop.above: needs stop.metric, which is null; set it to accuracy, loss, training_loss or one of metrics"),
        ({"median": 5, "accuracy": 0.9},
         "stop.median: needs stop.metric, which is null; set it to accuracy, loss, training_loss or one of metrics"),
        ({"metric": "loss"}, "stop.metric: loss needs above, below or patience, got null for all"),
        ({"metric": "loss", "above": 1.0, "below": 0.5},
         "stop.below: cannot be combined with above 1, got 0.5; leave one out"),
        ({"metric": "loss", "above": 1.0, "min_delta": 0.5}, "stop.min_delta: needs patience, which is null, got 0.5"),
        ({"metric": "accuracy", "above": 0.8, "accuracy": 0.9},
         "stop.above: is a second limit of the accuracy, beside accuracy 0.9; leave one out"),
        ({"metric": "", "above": 0.8}, "stop.metric: must be a string that is not empty or null, got ''"),
        ({"metric": "loss", "patience": 0}, "stop.patience: must be an integer of at least 1 or null, got 0"),
    ],
)  # fmt: skip
def test_errors(settings, message):
    with refuses(message):
        build(Stop, settings, path="stop")
