"""What the settings say of an iteration: its local step, and whether averaging starts again before it."""

from __future__ import annotations

from mpibow.config import Config
from mpibow.kernels.passes import Local
from mpibow.optim.schedules import multiplier
from mpibow.sync.settings import Sma


def local_step(config: Config, epoch: float, decayed: int) -> Local:
    """The local step at `epoch`; weight decay is of the first `decayed` elements."""
    update = config.update
    rate = update.lr * multiplier(config.schedule, update.warmup, epoch)
    return Local(rate, update.momentum, update.nesterov, update.weight_decay, decayed)


def restarts(config: Config, before: float, now: float) -> bool:
    """Whether `rule.restart` wants averaging to start again between the epochs `before` and `now`."""
    return isinstance(config.rule, Sma) and config.rule.restarts(before, now, config.schedule.drops(before, now))
