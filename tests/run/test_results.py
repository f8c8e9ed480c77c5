"""What a run has come to: sums, the best, and when the target was reached."""

import json

from mpibow.config import build
from mpibow.run.evaluate import Evaluation
from mpibow.run.results import Ledger, measures


def test_the_best_and_the_first_above_the_target():
    ledger = Ledger().continued(0.5)
    best = []
    for epoch, accuracy in enumerate([0.3, 0.6, 0.5, 0.6, 0.7]):
        ledger.seconds = 10.0 * epoch
        best.append(
            ledger.evaluated(
                "test", Evaluation(1.0 - accuracy, accuracy, 100, 2.0), 5 * epoch, 100 * epoch, float(epoch)
            )
        )
    assert best == [True, True, False, False, True]
    assert (ledger.epochs_to_target, ledger.seconds_to_target) == (1.0, 10.0)
    assert (ledger.accuracy, ledger.best_accuracy, ledger.evaluated_at) == (0.7, 0.7, 400)
    assert (ledger.evaluation_seconds, ledger.best_at) == (10.0, 20)


def test_a_loss_that_is_not_finite_is_never_the_best():
    ledger, nan = Ledger().continued(None), float("nan")
    found = [
        ledger.evaluated("test", Evaluation(loss, None, 100, 1.0), 5, 100, 1.0) for loss in (nan, 2.0, nan, 3.0, 1.0)
    ]
    assert found == [False, True, False, False, True]
    assert ledger.best_loss == 1.0


def test_without_a_target():
    ledger = Ledger().continued(None)
    ledger.evaluated("test", Evaluation(0.0, 1.0, 100, 2.0), 5, 100, 1.0)
    assert ledger.epochs_to_target is None


def test_state():
    ledger = Ledger().continued(0.5)
    ledger.evaluated("test", Evaluation(0.1, 0.9, 100, 0.1 + 0.2), 5, 100, 1.0)
    state = json.loads(json.dumps(ledger.state()))
    assert build(Ledger, state).continued(0.5) == ledger


def test_another_target_is_still_to_be_reached():
    ledger = Ledger().continued(0.5)
    ledger.evaluated("test", Evaluation(0.1, 0.9, 100, 1.0), 5, 100, 1.0)
    for target in (0.95, None):
        again = ledger.continued(target)
        assert (again.target, again.epochs_to_target, again.seconds_to_target) == (target, None, None)
        assert again.best_accuracy == 0.9


def test_validation_data_choose_and_test_data_are_told_apart():
    ledger = Ledger().continued(0.5, "validation 0.1")
    ledger.enter("test", Evaluation(0.1, 0.99, 50, 1.0))
    assert ledger.best_accuracy is ledger.epochs_to_target is ledger.chosen.get("accuracy") is None
    for iteration, accuracy in ((10, 0.6), (20, 0.4)):
        ledger.evaluated("validation", Evaluation(0.7, accuracy, 9, 1.0, 0.8), iteration, 9 * iteration, 1.0)
    ledger.enter("best_test", Evaluation(0.2, 0.98, 50, 1.0))
    assert (ledger.chosen["accuracy"], ledger.best_accuracy, ledger.best_at, ledger.evaluated_at) == (0.4, 0.6, 10, 180)
    assert (ledger.validation_accuracy, ledger.validation_loss, ledger.validation_top_k_accuracy) == (0.4, 0.7, 0.8)
    assert (ledger.accuracy, ledger.test_loss, ledger.top_k_accuracy) == (0.99, 0.1, None)
    assert (ledger.best_test_accuracy, ledger.best_test_loss, ledger.epochs_to_target) == (0.98, 0.2, 1.0)
    assert ledger.evaluation_seconds == 4.0


def test_what_other_data_chose_is_no_best():
    """Neither of a run before there were validation data, whose ledger does not name the chooser."""
    ledger = Ledger().continued(0.5)
    ledger.evaluated("test", Evaluation(0.1, 0.9, 100, 1.0), 5, 100, 1.0)
    state = ledger.state()
    assert build(Ledger, state).continued(0.5) == ledger
    del state["chooser"]
    again = build(Ledger, state).continued(0.5, "validation 0.1")
    assert (again.best_accuracy, again.best_loss, again.best_at, again.epochs_to_target) == (None, None, None, None)
    assert (again.accuracy, again.evaluated_at, again.target, again.chooser) == (0.9, -1, 0.5, "validation 0.1")
    assert again.evaluated("validation", Evaluation(2.0, 0.2, 10, 1.0), 6, 110, 1.1)


def test_a_runs_own_metric_may_be_called_accuracy():
    """Without classes it is what stops the run, and chooses the best checkpoint."""
    assert measures({"accuracy": 0.9}, 1.0, None) == {"accuracy": 0.9, "loss": 1.0}
    assert measures({}, 1.0, 0.5) == {"accuracy": 0.5, "loss": 1.0}
    ledger = Ledger().continued(None, by="accuracy")
    found = Evaluation(1.0, None, 100, 2.0, metrics={"accuracy": 0.9})
    assert ledger.evaluated("test", found, 5, 100, 1.0)
    assert (ledger.chosen["accuracy"], ledger.best_metric) == (0.9, 0.9)
