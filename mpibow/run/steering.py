"""Decisions by metrics while a run trains: its end (`stop.metric`), and the rate drops of a plateau schedule.

Accuracy, loss and `metrics` are from an evaluation on the data that choose; training_loss is an epoch's mean. Every
rank has the same values. The state is part of the ledger, so checkpoints have it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from mpibow.metrics.metric import OWN
from mpibow.optim.plateau import Plateau, follow
from mpibow.optim.schedules import Schedule
from mpibow.run.ledger import Ledger
from mpibow.run.stop import Stop


class Steering:
    """Every rank has one, alike. `rises` maps the run's metrics to True if a higher value is better."""

    def __init__(self, stop: Stop, schedule: Schedule, ledger: Ledger, rises: Mapping[str, bool] = OWN) -> None:
        self._stop, self._ledger, self._rises = stop, ledger, rises
        self._plateau = schedule if isinstance(schedule, Plateau) else None
        metrics = (stop.metric, None if self._plateau is None else self._plateau.metric)
        self.by_epoch = "training_loss" in metrics  # whether a decision needs every epoch's training loss

    @property
    def rate(self) -> float:
        """The factor of a plateau schedule on the rate."""
        return 1.0 if self._plateau is None else self._ledger.reduced.rate

    def drops(self, iteration: int) -> bool:
        """Whether a plateau schedule drops the rate at the beginning of this iteration."""
        return self._plateau is not None and self._ledger.reduced.dropped_at == iteration

    def limit_reached(self, iteration: int, position: int, count: int) -> str:
        """As Stop.reached."""
        accurate = self._ledger.epochs_to_target is not None
        return self._stop.reached(iteration, position, count, accurate=accurate, watched=self._ledger.watched)

    def evaluated(self, iteration: int, epoch: float) -> str:
        """Enters an evaluation on the data that choose, before `iteration`. Returns a line about the rate, or ''."""
        values = {name: value for name, value in self._ledger.chosen.items() if name in self._rises}
        return "".join(
            self._take(name, math.nan if value is None else value, iteration, epoch) for name, value in values.items()
        )

    def epoch_ended(self, iteration: int, epoch: float) -> str:
        """Enters the end of an epoch whose losses all are in the ledger; returns as `evaluated`."""
        ledger = self._ledger
        loss, samples = ledger.epoch_loss, ledger.epoch_samples
        ledger.epoch_loss, ledger.epoch_samples = 0.0, 0
        return self._take("training_loss", loss / samples, iteration, epoch) if samples else ""

    def _take(self, metric: str, value: float, iteration: int, epoch: float) -> str:
        ledger, stop = self._ledger, self._stop
        if stop.metric == metric:
            ledger.watched = stop.follow(ledger.watched, value, rises=self._rises[metric])
            if stop.met(ledger.watched):
                ledger.met(epoch)
        if self._plateau is None or self._plateau.metric != metric:
            return ""
        ledger.reduced = follow(self._plateau, ledger.reduced, value, iteration, rises=self._rises[metric])
        if not self.drops(iteration):
            return ""
        best = ledger.reduced.best
        since = "is not finite" if best is None else f"has been no better than {best:.4g}"
        return (
            f"epoch {epoch:.2f}: {metric.replace('_', ' ')} {since}: the rate is {ledger.reduced.rate:g} of update.lr"
        )
