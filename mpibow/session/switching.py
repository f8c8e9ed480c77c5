"""Switching to another rule within a run, on all ranks alike."""

from __future__ import annotations

from typing import cast

import numpy as np

from mpibow.config import Config
from mpibow.learn.replica import Replicas
from mpibow.session.where import Where
from mpibow.sync.rule import Rule
from mpibow.sync.switch import Switch
from mpibow.sync.synchroniser import Synchroniser


def switch_rule(rule: Rule, replicas: Replicas, synchroniser: Synchroniser, config: Config, where: Where) -> str:
    """Switches to the rule behind `rule`, from its settled centre. Returns a line for the log.

    Where it moves all replicas by one step, the optimiser keeps the mean of their states.
    """
    both = cast(Switch, rule)
    if both.second.alike:
        synchroniser.level(sum(where.learners))
        own = [replicas.updates.max(axis=0).tolist(), replicas.seen.max(axis=0).tolist()]
        most = np.max(synchroniser.call(lambda comm: comm.share(own)), axis=0)
        replicas.updates[:], replicas.seen[:] = most
    both.switch()
    return f"iteration {where.iteration}: rule {config.averaging.at(where.epoch).name}"
