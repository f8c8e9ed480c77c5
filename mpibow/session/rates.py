"""The settings of an iteration: its learning rate, and its rule."""

from __future__ import annotations

from mpibow.config import Config, document, load_mapping
from mpibow.config.renamed import renamed
from mpibow.data.timeline import Timeline
from mpibow.errors import ConfigError
from mpibow.optim.schedules import Ending, multiplier
from mpibow.run.ledger import Ledger
from mpibow.run.steering import Steering
from mpibow.session.where import Where
from mpibow.sync.rule import RuleSettings

OF_RATE = "lr", "schedule", "warmup"  # settings of update
JUMP = 0.01  # of a rate, which is worth a line


def rate_of(config: Config, where: Where, steering: Steering) -> float:
    """The learning rate of the iteration that begins at `where`."""
    update = config.update
    return update.lr * multiplier(config.schedule, update.warmup, where.epoch, where.iteration) * steering.rate


def jump(text: str, config: Config, where: Where, ledger: Ledger) -> str:
    """The log's line where a resumed run has another rate than the run before, whose config is `text`; '' for none."""
    stored = renamed(document.parse(text, "config"))
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
