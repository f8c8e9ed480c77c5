"""A run's results so far: the ledger, which goes into checkpoints, and ends up in summary.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mpibow.optim.plateau import Reduced, better
from mpibow.run.evaluate import Evaluation
from mpibow.run.stop import Watched


@dataclass
class Results:
    """The results that checkpoints and the summary have. Accuracies are fractions of the samples, null without these,
    and of the last centre unless named `best`; seconds are of training alone."""

    validation_accuracy: float | None = None
    validation_top_k_accuracy: float | None = None
    validation_loss: float | None = None
    accuracy: float | None = None  # on test data, as the next ones
    top_k_accuracy: float | None = None
    test_loss: float | None = None
    best_accuracy: float | None = None  # the highest on the data that chose
    best_test_accuracy: float | None = None  # of the checkpoint that validation data chose as the best
    best_test_loss: float | None = None
    average_validation_accuracy: float | None = None  # of the average of the centre, null without `ema`
    average_validation_loss: float | None = None
    average_accuracy: float | None = None  # on test data
    average_test_loss: float | None = None
    validation_metrics: Mapping[str, Any] = field(default_factory=dict)  # by name, as `metrics` has them
    test_metrics: Mapping[str, Any] = field(default_factory=dict)
    best_metric: float | None = None  # the best value of checkpoint.metric on the data that chose
    best_test_metrics: Mapping[str, Any] = field(default_factory=dict)
    average_validation_metrics: Mapping[str, Any] = field(default_factory=dict)
    average_test_metrics: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    target: float | None = None
    goal: str = "accuracy"  # the metric that is to reach the target
    epochs_to_target: float | None = None
    seconds_to_target: float | None = None
    changes: int = 0  # how often learners came or went
    reason: str | None = None  # the tuner's reason for its last decision that was new; null where it decided nothing
    drift: float = 0.0
    mismatches: int = 0
    resets: int = 0


@dataclass
class Ledger(Results):
    """Sums over the whole run, resumed or not. `loss`, `hits` and `samples` count since the last metrics entry."""

    images: int = 0
    loss: float = 0.0
    hits: float = 0.0
    samples: int = 0
    chooser: str = "test"  # the data that best, target and `evaluated_at` are of
    best_loss: float | None = None
    best_at: int | None = None  # iteration
    best_by: str | None = None  # checkpoint.metric, None: the accuracy, without classes the loss
    best_rises: bool = True
    evaluated_at: int = -1  # position
    guessed: int = 0  # evaluations in a row whose accuracy is that of chance
    settled: bool = False  # whether the tuner's last decision, be it new or not, was to stay
    epoch_loss: float = 0.0  # sums since the last epoch ended
    epoch_samples: int = 0
    watched: Watched = field(default_factory=Watched)  # stop.metric
    reduced: Reduced = field(default_factory=Reduced)  # a plateau schedule
    damaged: list[str] = field(default_factory=list)  # samples that others replaced, by data set and number

    def heard(self, loss: float, hits: float, samples: int) -> None:
        """Enters the sums that an all-reduce has carried, over so many samples."""
        self.loss += loss
        self.hits += hits
        self.samples += samples
        self.epoch_loss += loss
        self.epoch_samples += samples

    def evaluated(self, data: str, found: Evaluation, iteration: int, position: int, epoch: float) -> bool:
        """Enters an evaluation on the `data` that choose, "validation" or "test". True if it is the best so far.

        The best is by checkpoint.metric, else by accuracy, or by the loss where there is none.
        """
        self.enter(data, found)
        self.evaluated_at = position
        best = self._best(found, epoch)
        if best:
            self.best_at = iteration
        return best

    def enter(self, place: str, found: Evaluation) -> None:
        """Enters an evaluation of the last centre, "validation" or "test"; of its average, "average_validation" or
        "average_test"; or of the best checkpoint, "best_test"."""
        self.evaluation_seconds += found.seconds
        values = {
            f"{place}_loss": found.loss,
            f"{place}_metrics": dict(found.metrics),
            _accuracy(place): found.accuracy,
        }
        if place in ("validation", "test"):
            values[_accuracy(place, "top_k_accuracy")] = found.top_k_accuracy
        for name, value in values.items():
            setattr(self, name, value)

    @property
    def chosen(self) -> dict[str, Any]:
        """The last values on the data that choose, by metric."""
        if self.chooser == "test":
            return measures(self.test_metrics, self.test_loss, self.accuracy)
        return measures(self.validation_metrics, self.validation_loss, self.validation_accuracy)

    def met(self, epoch: float) -> None:
        """Enters that the target is reached."""
        if self.target is not None and self.epochs_to_target is None:
            self.epochs_to_target, self.seconds_to_target = epoch, self.seconds

    def _best(self, found: Evaluation, epoch: float) -> bool:
        best = found.loss < (math.inf if self.best_loss is None else self.best_loss)  # NaN never is
        if best:
            self.best_loss = found.loss
        if found.accuracy is not None:
            if self.goal == "accuracy" and self.target is not None and found.accuracy >= self.target:
                self.met(epoch)
            best = self.best_accuracy is None or found.accuracy > self.best_accuracy
            if best:
                self.best_accuracy = found.accuracy
        return best if self.best_by is None else self._best_metric(found)

    def _best_metric(self, found: Evaluation) -> bool:
        """Whether this evaluation has the best value so far of the metric that chooses."""
        value = measures(found.metrics, found.loss, found.accuracy).get(str(self.best_by))
        if value is None or not math.isfinite(value):
            return False
        best = self.best_metric is None or better(self.best_rises, value, self.best_metric)
        if best:
            self.best_metric = value
        return best

    def state(self) -> dict[str, Any]:
        return asdict(self)

    def continued(
        self, target: float | None, chooser: str = "test", goal: str = "accuracy", *, by: str | None = None,
        rises: bool = True,
    ) -> Ledger:  # fmt: skip
        """The ledger of a run that goes on from this one; a changed target is still to be reached.

        If other data choose now, or another metric `by`, there is no best yet.
        """
        ledger = deepcopy(self)
        other = ledger.chooser != chooser
        if other:
            ledger.chooser, ledger.evaluated_at = chooser, -1
            ledger.best_accuracy = ledger.best_loss = ledger.best_at = ledger.best_metric = None
            ledger.best_test_accuracy = ledger.best_test_loss = None
            ledger.watched, ledger.reduced = Watched(), replace(ledger.reduced, metric="")
        if ledger.best_by != by:
            ledger.best_by, ledger.best_metric, ledger.best_at = by, None, None
            ledger.best_accuracy = ledger.best_loss = None
        ledger.best_rises = rises
        if other or (ledger.goal, ledger.target) != (goal, target):
            ledger.goal = goal
            ledger.target, ledger.epochs_to_target, ledger.seconds_to_target = target, None, None
        return ledger


def _accuracy(place: str, name: str = "accuracy") -> str:
    """The name of an accuracy: on test data, which it does not name, of the centre and of its average."""
    return {"test": name, "average_test": f"average_{name}"}.get(place, f"{place}_{name}")


def measures(metrics: Mapping[str, Any], loss: float | None, accuracy: float | None) -> dict[str, Any]:
    """All by name. Without classes there is no accuracy, and a run's own metric may have that name."""
    return {**metrics, "loss": loss, **({} if accuracy is None else {"accuracy": accuracy})}
