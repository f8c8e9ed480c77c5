"""A learner: takes a slot, computes a gradient. One thread, one replica, one plan."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from mpibow.data.slots import Slot
from mpibow.graph.graph import Array
from mpibow.graph.plan import BoundPlan, Plan
from mpibow.learn.replica import Replicas


@dataclass(frozen=True)
class Result:
    """What one batch gave: its summed loss, its hits, whether loss and gradient are finite, seconds of computing."""

    loss: float
    hits: float
    finite: bool
    seconds: float


class Learner:
    """`plan` is bound to a replica's weights and to `gradient` (size,)."""

    def __init__(self, plan: BoundPlan, gradient: Array) -> None:
        self.plan, self.gradient = plan, gradient

    def compute(self, slot: Slot) -> Result:
        """Copies the slot in, releases it, and computes the gradient of the mean loss of its batch."""
        begin = time.perf_counter()
        for name, array in self.plan.inputs.items():
            np.copyto(array, slot.arrays[name])
        slot.release()
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # asked once, below
            self.plan.run()
            loss = float(self.plan.outputs["loss"].sum(dtype=np.float64))
            square = float(np.dot(self.gradient, self.gradient))
        hits = float(self.plan.outputs["accuracy"].sum(dtype=np.float64)) if "accuracy" in self.plan.outputs else 0.0
        finite = math.isfinite(loss) and math.isfinite(square)
        return Result(loss, hits, finite, time.perf_counter() - begin)


def bind_learners(learners: list[Learner], plan: Plan, replicas: Replicas) -> None:
    """Learners for all replicas in use; those that were bound once stay bound, so a change of number is cheap."""
    while len(learners) < replicas.count:
        weights, gradient, statistics = replicas.row(len(learners))
        learners.append(Learner(plan.bind(weights, gradient, statistics), gradient))
