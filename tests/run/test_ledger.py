"""What a run has come to: sums, the best, and when the target was reached."""

from __future__ import annotations

import json

from mpibow.run.evaluate import Evaluation
from mpibow.run.ledger import Ledger


def test_the_best_and_the_first_above_the_target() -> None:
    ledger = Ledger.of({}, 0.5)
    best = []
    for epoch, accuracy in enumerate([0.3, 0.6, 0.5, 0.6, 0.7]):
        ledger.seconds = 10.0 * epoch
        best.append(ledger.evaluated(Evaluation(1.0 - accuracy, accuracy, 100, 2.0), 100 * epoch, float(epoch)))
    assert best == [True, True, False, False, True]
    assert (ledger.epochs_to_target, ledger.seconds_to_target) == (1.0, 10.0)
    assert (ledger.accuracy, ledger.best_accuracy, ledger.evaluated_at) == (0.7, 0.7, 400)
    assert ledger.evaluation_seconds == 10.0


def test_a_loss_that_is_not_finite_is_never_the_best() -> None:
    ledger, nan = Ledger.of({}, None), float("nan")
    found = [ledger.evaluated(Evaluation(loss, None, 100, 1.0), 100, 1.0) for loss in (nan, 2.0, nan, 3.0, 1.0)]
    assert found == [False, True, False, False, True]
    assert ledger.best_loss == 1.0


def test_without_a_target() -> None:
    ledger = Ledger.of({}, None)
    ledger.evaluated(Evaluation(0.0, 1.0, 100, 2.0), 100, 1.0)
    assert ledger.epochs_to_target is None


def test_state() -> None:
    ledger = Ledger.of({}, 0.5)
    ledger.evaluated(Evaluation(0.1, 0.9, 100, 0.1 + 0.2), 100, 1.0)
    state = json.loads(json.dumps(ledger.state()))
    assert Ledger.of(state, 0.5) == ledger


def test_another_target_is_still_to_be_reached() -> None:
    ledger = Ledger.of({}, 0.5)
    ledger.evaluated(Evaluation(0.1, 0.9, 100, 1.0), 100, 1.0)
    for target in (0.95, None):
        again = Ledger.of(ledger.state(), target)
        assert (again.target, again.epochs_to_target, again.seconds_to_target) == (target, None, None)
        assert again.best_accuracy == 0.9
