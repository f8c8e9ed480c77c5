"""The settings of an iteration: its learning rate, its rule, and whether averaging starts again before it."""

from __future__ import annotations

from mpibow.config import Config
from mpibow.data.timeline import Timeline
from mpibow.optim.schedules import multiplier
from mpibow.run.steering import Steering
from mpibow.session.where import Where
from mpibow.sync.settings import RuleSettings


def rate_of(config: Config, where: Where, steering: Steering) -> float:
    """The learning rate of the iteration that begins at `where`."""
    update = config.update
    return update.lr * multiplier(config.schedule, update.warmup, where.epoch, where.iteration) * steering.rate


def restarts(config: Config, timeline: Timeline, count: int, where: Where, steering: Steering) -> bool:
    """Whether the rule restarts averaging before the iteration at `where`; epochs have `count` samples."""
    if where.iteration <= timeline.changes[0].iteration:
        return False
    before = timeline.position(where.iteration - 1) / count
    drops = config.schedule.drops(before, where.epoch) or steering.drops(where.iteration)
    return config.averaging.at(before).restarts(before, where.epoch, drops)


def in_force(config: Config, timeline: Timeline, count: int, iteration: int) -> RuleSettings:
    """The rule of the iteration before, whose state a checkpoint at `iteration` has; the first iteration's own."""
    return config.averaging.at(timeline.position(max(iteration - 1, timeline.changes[0].iteration)) / count)


def switches(config: Config, timeline: Timeline, count: int, where: Where) -> bool:
    """Whether another rule takes over before the iteration at `where`."""
    return in_force(config, timeline, count, where.iteration) is not config.averaging.at(where.epoch)
