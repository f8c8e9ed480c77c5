"""Metrics that decide, in whole runs: alike on all ranks, the same when resumed, blind to the test data."""

import pytest

from mpibow.config.course import Stop
from mpibow.optim.plateau import Plateau, Reduced, follow
from tests.refusals import refuses
from tests.run import tiny

EPOCHS = {"epochs": 8}
PLATEAU = {"name": "plateau", "factor": 0.5, "patience": 0, "threshold": 0.3}


def update(**schedule) -> dict:
    return {"lr": 0.02, "momentum": 0.9, "schedule": {**PLATEAU, **schedule}}


@pytest.mark.parametrize("metric", ["training_loss", "loss", "accuracy"])
def test_the_rate_follows_the_metric_and_no_test_data(tmp_path, metric):
    settings = {"update": update(metric=metric), "stop": EPOCHS, "validation": 0.3, "log": {"every": 1}}
    with_test = tiny.train(tmp_path / "a", **settings)
    without = tiny.train(tmp_path / "b", test=None, **settings)
    assert tiny.same_bits(with_test.weights, without.weights)
    found = tiny.rates(tmp_path / "a")
    assert len(set(found)) > 2
    assert found == tiny.rates(tmp_path / "b")
    if metric == "training_loss":
        return
    state, expected = Reduced(), []
    for event in tiny.events(tmp_path / "a/run"):  # by the metrics, as they are on disk
        if event["event"] == "evaluate" and event["data"] == "validation":
            schedule = Plateau(metric, 0.5, 0, 0.3)  # type: ignore[arg-type]
            state = follow(schedule, state, event[metric], event["iteration"])
        elif event["event"] == "train":
            expected.append((event["iteration"], 0.02 * state.rate))
    assert found == [rate for _, rate in expected]


def test_test_evaluations_change_nothing_where_they_choose(tmp_path):
    """By training loss, with test data that choose the best, often, seldom, or none at all."""
    settings = {"update": update(metric="training_loss"), "stop": EPOCHS, "rule": {"name": "crossbow"}}
    settings |= {"learners": 2}
    runs = [
        tiny.train(tmp_path / "a", evaluate={"every": 0.1, "batch_size": 7}, **settings),
        tiny.train(tmp_path / "b", evaluate={"every": 5, "batch_size": 7}, **settings),
        tiny.train(tmp_path / "c", test=None, **settings),
    ]
    assert tiny.same_bits(runs[0].weights, runs[1].weights)
    assert tiny.same_bits(runs[0].weights, runs[2].weights)
    assert len(set(tiny.rates(tmp_path / "a"))) > 2


@pytest.mark.parametrize("metric", ["training_loss", "loss"])
@pytest.mark.parametrize("at", [19, 38, 45])  # an epoch is 57 / (3 * 2) = 9.5 iterations
def test_resumed_it_goes_on_alike(tmp_path, metric, at):
    settings = {
        "update": update(metric=metric), "stop": {"epochs": None, "iterations": 80, "metric": metric, "patience": 50},
        "validation": 0.3, "learners": 2, "checkpoint": {"every": f"{at} iterations"}, "log": {"every": 1},
    }  # fmt: skip
    whole = tiny.train(tmp_path / "whole", ranks=2, **settings)
    short = {**settings, "stop": {**settings["stop"], "iterations": at}}
    tiny.train(tmp_path / "part", ranks=2, **short)
    part = tiny.train(tmp_path / "part", ranks=2, resume=tmp_path / "part/run", **settings)
    assert tiny.same_bits(whole.weights, part.weights)
    assert tiny.rates(tmp_path / "part") == tiny.rates(tmp_path / "whole")
    assert len(set(tiny.rates(tmp_path / "whole"))) > 1


def test_a_drop_restarts_averaging(tmp_path):
    """As a step's does, unless rule.restart is never."""
    found = {}
    for restart in ("auto", "never"):
        settings = {"rule": {"name": "crossbow", "momentum": 0.9, "restart": restart}, "learners": 3}
        found[restart] = tiny.train(
            tmp_path / restart, update=update(metric="training_loss", threshold=0.9), stop={"epochs": 6}, **settings
        )
    assert tiny.rates(tmp_path / "auto")[-1] < 0.02
    assert not tiny.same_bits(found["auto"].weights, found["never"].weights)


def test_a_metric_ends_the_run(tmp_path):
    job = tiny.job(
        tmp_path, stop={"epochs": 50, "metric": "accuracy", "above": 0.9, "median": 3}, validation=0.3, test=None
    )
    summary = tiny.run(job, ranks=2).summary
    accuracies = [event["accuracy"] for event in tiny.events(tmp_path / "run", "evaluate")]
    middle = [sorted(accuracies[n - 3 : n])[1] for n in range(3, len(accuracies) + 1)]
    assert middle[-1] >= 0.9 > max(middle[:-1], default=0.0)
    assert (summary.stopped, summary.goal, summary.target) == ("stop.above 0.9", "median of 3: accuracy above", 0.9)
    assert summary.epochs_to_target == pytest.approx(summary.epochs)
    assert "target median of 3: accuracy above 90.00% reached in" in str(summary)


def test_patience_of_the_training_loss_ends_the_run(tmp_path):
    stop = {"epochs": 50, "metric": "training_loss", "patience": 2, "min_delta": 0.5}
    summary = tiny.train(tmp_path, stop=stop, test=None, update={"lr": 1e-4}).summary
    assert summary.stopped == "stop.patience 2"
    assert summary.epochs == pytest.approx(3, abs=0.1)
    assert (summary.target, summary.epochs_to_target) == (None, None)


def test_a_limit_beside_a_target_ends_the_run(tmp_path):
    stop = {"epochs": 9, "accuracy": 0.99, "metric": "loss", "below": 100.0}
    summary = tiny.train(tmp_path, stop=stop, update={"lr": 1e-9}).summary
    assert (summary.stopped, summary.target, summary.epochs_to_target) == ("stop.below 100", 0.99, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"update": update(metric="loss")},
         "update.schedule.metric: loss needs validation data, and there are none; set data.validation=0.1 or "
         "update.schedule.metric=training_loss"),
        ({"test": None, "stop": {"metric": "loss", "patience": 1}},
         "stop.metric: loss needs validation data, and there are none; set data.validation=0.1 or "
         "stop.metric=training_loss"),
        ({"test": None, "stop": {"epochs": None, "accuracy": 0.9}},
         "stop.accuracy: accuracy needs validation data, and there are none; set data.validation=0.1"),
    ],
)  # fmt: skip
def test_data_that_are_not_there(tmp_path, settings, message):
    with refuses(message):
        tiny.job(tmp_path, **settings)


def test_losses_have_no_accuracy():
    assert Stop(metric="loss", below=0.1).target == ("loss below", 0.1)
