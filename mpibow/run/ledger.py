"""The ledger: what a run has come to so far. It goes into checkpoints and ends up in summary.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mpibow.run.evaluate import Evaluation


@dataclass
class Ledger:
    """Sums over the whole run, resumed or not. `loss`, `hits` and `samples` count since the last metrics entry."""

    seconds: float = 0.0  # of training, evaluation excluded
    evaluation_seconds: float = 0.0
    images: int = 0
    loss: float = 0.0
    hits: float = 0.0
    samples: int = 0
    accuracy: float | None = None
    top_k_accuracy: float | None = None
    test_loss: float | None = None
    best_accuracy: float | None = None
    best_loss: float | None = None
    target: float | None = None  # the accuracy to be reached
    epochs_to_target: float | None = None
    seconds_to_target: float | None = None
    evaluated_at: int = -1  # position
    drift: float = 0.0
    mismatches: int = 0
    resets: int = 0
    changes: int = 0  # of learners
    reason: str | None = None  # of the tuner's last decision that said something new
    settled: bool = False  # whether its last decision, be it new or not, was to stay
    damaged: list[str] = field(default_factory=list)  # samples that others replaced, by data set and number

    def evaluated(self, found: Evaluation, position: int, epoch: float) -> bool:
        """Enters an evaluation; whether it is the best so far: by its accuracy, by its loss where there is none."""
        self.evaluation_seconds += found.seconds
        self.accuracy, self.test_loss, self.evaluated_at = found.accuracy, found.loss, position
        self.top_k_accuracy = found.top_k_accuracy
        lower = found.loss < (math.inf if self.best_loss is None else self.best_loss)  # NaN never is
        if lower:
            self.best_loss = found.loss
        if found.accuracy is None:
            return lower
        if self.target is not None and found.accuracy >= self.target and self.epochs_to_target is None:
            self.epochs_to_target, self.seconds_to_target = epoch, self.seconds
        best = self.best_accuracy is None or found.accuracy > self.best_accuracy
        if best:
            self.best_accuracy = found.accuracy
        return best

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any], target: float | None) -> Ledger:
        """The ledger that `state` gave, {} for a new one; another target than it had is still to be reached."""
        ledger = cls(**state)
        if ledger.target != target:
            ledger.target, ledger.epochs_to_target, ledger.seconds_to_target = target, None, None
        return ledger
