"""A run's progress, and its settings there: the learning rate, the rule, and its end by metrics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mpibow.config import Config, load_mapping, yaml_text
from mpibow.config.course import Stop
from mpibow.config.renamed import renamed
from mpibow.data import Timeline
from mpibow.errors import ConfigError
from mpibow.metrics.metric import OWN
from mpibow.optim.plateau import Plateau, follow
from mpibow.optim.schedules import Ending, Schedule, multiplier
from mpibow.sync import RuleSettings
from mpibow.system import JsonObject
from mpibow.tune import Counts

from .results import Ledger

OF_RATE = "lr", "schedule", "warmup"  # settings of update
JUMP = 0.01  # of a rate, which is worth a line


@dataclass(frozen=True)
class Where:
    """A run's progress: iterations done, samples consumed, epochs as a fraction; learners by rank, their execution."""

    iteration: int
    position: int
    epoch: float
    learners: Counts
    execution: str = ""

    def fields(self) -> JsonObject:
        return {"iteration": self.iteration, "position": self.position, "epoch": round(self.epoch, 6)}

    def running(self) -> JsonObject:
        """Learners, and their execution if there is a choice."""
        return {"learners": self.learners, **({"execution": self.execution} if self.execution else {})}


def rate_of(config: Config, where: Where, steering: "Steering") -> float:
    """The learning rate of the iteration that begins at `where`."""
    update = config.update
    return update.lr * multiplier(config.schedule, update.warmup, where.epoch, where.iteration) * steering.rate


def jump(text: str, config: Config, where: Where, ledger: Ledger) -> str:
    """The log's line where a resumed run has another rate than the run before, whose config is `text`; '' for none."""
    stored = renamed(yaml_text.parse(text, "config"))
    try:
        parts = {key: stored[key] for key in ("update", "stop") if stored.get(key)}
        before = load_mapping(parts, model_given=True, data_given=True)
        then, now = (rate_of(each, where, Steering(each.stop, each.schedule, ledger)) for each in (before, config))
    except ConfigError:  # another version's settings
        return ""
    if abs(now - then) <= JUMP * max(now, then):
        return ""
    values = {
        "stop.epochs": (before.stop.epochs, config.stop.epochs),
        **{f"update.{key}": (getattr(before.update, key), getattr(config.update, key)) for key in OF_RATE},
    }
    changed = ", ".join(key for key, (old, new) in values.items() if old != new)
    kept = ""
    if isinstance(before.schedule, Ending) and before.update.schedule == config.update.schedule:
        kept = f"; update.schedule.epochs={before.schedule.epochs:g} keeps the former schedule"
    return f"warning: the learning rate is {now:.4g} from here on, and was {then:.4g}: {changed} changed{kept}"


def in_force(config: Config, timeline: Timeline, count: int, iteration: int) -> RuleSettings:
    """The rule of the iteration before, whose state a checkpoint at `iteration` has; the first iteration's own."""
    return config.averaging.at(timeline.position(max(iteration - 1, timeline.changes[0].iteration)) / count)


class Steering:
    """Every rank has one, alike. `rises` maps the run's metrics to True if a higher value is better."""

    def __init__(self, stop: Stop, schedule: Schedule, ledger: Ledger, rises: Mapping[str, bool] = OWN):
        self._stop = stop
        self._ledger = ledger
        self._rises = rises
        self._plateau = schedule if isinstance(schedule, Plateau) else None
        # whether a decision needs every epoch's training loss
        self.by_epoch = "training_loss" in (stop.metric, None if self._plateau is None else self._plateau.metric)

    @property
    def rate(self) -> float:
        """The factor of a plateau schedule on the rate."""
        return 1.0 if self._plateau is None else self._ledger.reduced.rate

    def drops(self, iteration: int) -> bool:
        """Whether a plateau schedule drops the rate at the beginning of this iteration."""
        return self._plateau is not None and self._ledger.reduced.dropped_at == iteration

    def evaluated(self, iteration: int, epoch: float) -> str:
        """Enters an evaluation on the data that choose, before `iteration`. Returns a line about the rate, or ''."""
        values = {name: value for name, value in self._ledger.chosen.items() if name in self._rises}
        return "".join(
            self._take(name, math.nan if value is None else value, iteration, epoch) for name, value in values.items()
        )

    def epoch_ended(self, iteration: int, epoch: float) -> str:
        """Enters the end of an epoch whose losses all are in the ledger; returns as `evaluated`."""
        ledger = self._ledger
        loss = ledger.epoch_loss
        samples = ledger.epoch_samples
        ledger.epoch_loss = 0.0
        ledger.epoch_samples = 0
        return self._take("training_loss", loss / samples, iteration, epoch) if samples else ""

    def _take(self, metric: str, value: float, iteration: int, epoch: float) -> str:
        ledger = self._ledger
        stop = self._stop
        if stop.metric == metric:
            ledger.watched = stop.follow(ledger.watched, value, rises=self._rises[metric])
            if stop.accuracy is None and stop.met(ledger.watched):  # beside an accuracy it is no target (Stop.target)
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
