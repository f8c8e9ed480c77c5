"""What the settings say of an iteration: its local step, and whether averaging starts again before it."""

from __future__ import annotations

from mpibow.config import Config
from mpibow.data.timeline import Timeline
from mpibow.kernels.passes import Local
from mpibow.optim.schedules import multiplier
from mpibow.run.steering import Steering
from mpibow.session.reporter import Where
from mpibow.sync.settings import Sma


def local_step(config: Config, where: Where, steering: Steering, decayed: int) -> Local:
    """The local step of the iteration that begins at `where`; weight decay is of the first `decayed` elements."""
    update = config.update
    rate = update.lr * multiplier(config.schedule, update.warmup, where.epoch, where.iteration) * steering.rate
    return Local(rate, update.momentum, update.nesterov, update.weight_decay, decayed)


def restarts(config: Config, timeline: Timeline, count: int, where: Where, steering: Steering) -> bool:
    """Whether `rule.restart` wants averaging to start again before the iteration at `where`; epochs have `count`."""
    if where.iteration <= timeline.changes[0].iteration:
        return False
    before = timeline.position(where.iteration - 1) / count
    drops = config.schedule.drops(before, where.epoch) or steering.drops(where.iteration)
    return isinstance(config.rule, Sma) and config.rule.restarts(before, where.epoch, drops)
