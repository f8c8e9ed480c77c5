"""The ledger: a run's results so far. It goes into checkpoints and ends up in summary.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mpibow.optim.plateau import Reduced, better
from mpibow.run.evaluate import Evaluation
from mpibow.run.stop import Watched


@dataclass
class Ledger:
    """Sums over the whole run, resumed or not. `loss`, `hits` and `samples` count since the last metrics entry."""

    seconds: float = 0.0  # of training, evaluation excluded
    evaluation_seconds: float = 0.0
    images: int = 0
    loss: float = 0.0
    hits: float = 0.0
    samples: int = 0
    chooser: str = "test"  # the data that best, target and `evaluated_at` are of
    validation_accuracy: float | None = None
    validation_top_k_accuracy: float | None = None
    validation_loss: float | None = None
    accuracy: float | None = None  # on test data, as the next two
    top_k_accuracy: float | None = None
    test_loss: float | None = None
    validation_metrics: Mapping[str, Any] = field(default_factory=dict)  # by name, as `metrics` has them
    test_metrics: Mapping[str, Any] = field(default_factory=dict)
    best_accuracy: float | None = None
    best_loss: float | None = None
    best_at: int | None = None  # iteration
    best_by: str | None = None  # checkpoint.metric, None: the accuracy, without classes the loss
    best_rises: bool = True
    best_metric: float | None = None  # the best value of that
    best_test_accuracy: float | None = None  # of the best checkpoint, on test data that did not choose it
    best_test_loss: float | None = None
    best_test_metrics: Mapping[str, Any] = field(default_factory=dict)
    average_validation_accuracy: float | None = None  # of the average of the centre, where there is one
    average_validation_loss: float | None = None
    average_accuracy: float | None = None  # on test data
    average_test_loss: float | None = None
    average_validation_metrics: Mapping[str, Any] = field(default_factory=dict)
    average_test_metrics: Mapping[str, Any] = field(default_factory=dict)
    goal: str = "accuracy"  # the metric that is to reach the target
    target: float | None = None
    epochs_to_target: float | None = None
    seconds_to_target: float | None = None
    evaluated_at: int = -1  # position
    guessed: int = 0  # evaluations in a row whose accuracy is that of chance
    drift: float = 0.0
    mismatches: int = 0
    resets: int = 0
    changes: int = 0  # of learners
    reason: str | None = None  # of the tuner's last decision that said something new
    settled: bool = False  # whether its last decision, be it new or not, was to stay
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
        self._enter(data, found)
        self.evaluated_at = position
        best = self._best(found, epoch)
        if best:
            self.best_at = iteration
        return best

    def tested(self, found: Evaluation, *, best: bool) -> None:
        """Enters an evaluation on test data that chose nothing, of the last centre or of the `best` checkpoint."""
        if best:
            self.evaluation_seconds += found.seconds
            self.best_test_accuracy, self.best_test_loss = found.accuracy, found.loss
            self.best_test_metrics = dict(found.metrics)
        else:
            self._enter("test", found)

    def averaged(self, data: str, found: Evaluation) -> None:
        """Enters an evaluation of the average of the centre, which chooses nothing."""
        self.evaluation_seconds += found.seconds
        if data == "test":
            self.average_accuracy, self.average_test_loss = found.accuracy, found.loss
            self.average_test_metrics = dict(found.metrics)
        else:
            self.average_validation_accuracy, self.average_validation_loss = found.accuracy, found.loss
            self.average_validation_metrics = dict(found.metrics)

    @property
    def chosen_accuracy(self) -> float | None:
        """The last accuracy on the data that choose."""
        return self.accuracy if self.chooser == "test" else self.validation_accuracy

    @property
    def chosen_loss(self) -> float | None:
        """The last loss on the data that choose."""
        return self.test_loss if self.chooser == "test" else self.validation_loss

    @property
    def chosen_metrics(self) -> Mapping[str, Any]:
        """The last metrics on the data that choose."""
        return self.test_metrics if self.chooser == "test" else self.validation_metrics

    def met(self, epoch: float) -> None:
        """Enters that the target is reached."""
        if self.target is not None and self.epochs_to_target is None:
            self.epochs_to_target, self.seconds_to_target = epoch, self.seconds

    def _enter(self, data: str, found: Evaluation) -> None:
        self.evaluation_seconds += found.seconds
        if data == "test":
            self.accuracy, self.test_loss, self.top_k_accuracy = found.accuracy, found.loss, found.top_k_accuracy
            self.test_metrics = dict(found.metrics)
        else:
            self.validation_accuracy, self.validation_loss = found.accuracy, found.loss
            self.validation_top_k_accuracy = found.top_k_accuracy
            self.validation_metrics = dict(found.metrics)

    def _best(self, found: Evaluation, epoch: float) -> bool:
        lower = found.loss < (math.inf if self.best_loss is None else self.best_loss)  # NaN never is
        if lower:
            self.best_loss = found.loss
        if self.best_by is not None:
            chosen = self._best_metric(found)
        if found.accuracy is None:
            return lower if self.best_by is None else chosen
        if self.goal == "accuracy" and self.target is not None and found.accuracy >= self.target:
            self.met(epoch)
        best = self.best_accuracy is None or found.accuracy > self.best_accuracy
        if best:
            self.best_accuracy = found.accuracy
        return best if self.best_by is None else chosen

    def _best_metric(self, found: Evaluation) -> bool:
        """Whether this evaluation has the best value so far of the metric that chooses."""
        values = {**found.metrics, "loss": found.loss, "accuracy": found.accuracy}
        value = values[str(self.best_by)]
        if value is None or not math.isfinite(value):
            return False
        best = self.best_metric is None or better(self.best_rises, value, self.best_metric)
        if best:
            self.best_metric = value
        return best

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(
        cls, state: Mapping[str, Any], target: float | None, chooser: str = "test", goal: str = "accuracy", *,
        by: str | None = None, rises: bool = True,
    ) -> Ledger:  # fmt: skip
        """The ledger that `state` gave, {} for a new one; a changed target is still to be reached.

        If other data choose now, or another metric `by`, there is no best yet.
        """
        kinds: dict[str, Callable[[Any], Any]] = {"watched": Watched.of, "reduced": Reduced.of}
        ledger = cls(**{key: kinds[key](value) if key in kinds else value for key, value in state.items()})
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
