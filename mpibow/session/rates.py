"""What the settings say of an iteration: its learning rate, and whether averaging starts again before it."""

from __future__ import annotations

from mpibow.config import Config
from mpibow.data.timeline import Timeline
from mpibow.optim.schedules import multiplier
from mpibow.run.steering import Steering
from mpibow.session.where import Where


def rate_of(config: Config, where: Where, steering: Steering) -> float:
    """The learning rate of the iteration that begins at `where`."""
    update = config.update
    return update.lr * multiplier(config.schedule, update.warmup, where.epoch, where.iteration) * steering.rate


def restarts(config: Config, timeline: Timeline, count: int, where: Where, steering: Steering) -> bool:
    """Whether the rule wants averaging to start again before the iteration at `where`; epochs have `count`."""
    if where.iteration <= timeline.changes[0].iteration:
        return False
    before = timeline.position(where.iteration - 1) / count
    drops = config.schedule.drops(before, where.epoch) or steering.drops(where.iteration)
    return config.rule.restarts(before, where.epoch, drops)
