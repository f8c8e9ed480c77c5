"""The stages of the learners' backward passes, as they are reached: what is done may be sent while they go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mpibow.graph.plan import Plan
from mpibow.graph.stages import stages_of, steps_in
from mpibow.learn.replica import Replicas

LINE = 8  # words of a cache line: learners do not share one


class Stages:
    """Up to `count` stages of a training plan, and a word of each learner: the number of those that it has reached.

    `loss(i)` and `square(i, start, stop)` are learner i's summed loss, and |gradient|^2 of weights, in this pass.
    """

    def __init__(
        self, plan: Plan, replicas: Replicas, chunk: int, count: int, loss: Callable[[int], float],
        square: Callable[[int, int, int], float],
    ) -> None:  # fmt: skip
        self._replicas, self._chunk, self._loss, self._square = replicas, chunk, loss, square
        self._stages = stages_of(plan, replicas.size, chunk, count)
        self._reached = np.zeros((replicas.capacity, LINE), np.int64)
        self.chunks: Sequence[Sequence[range]] = [stage.chunks for stage in self._stages]

    def signals(self, plan: Plan, i: int) -> dict[int, tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]]:
        """Learner i's in `plan`: behind these steps its word becomes this number."""
        steps = np.maximum.accumulate(steps_in(plan, self._stages, self._replicas.size, self._chunk))
        return {int(step): (self._reached[i, :1], b + 1) for b, step in enumerate(steps)}

    def begin(self) -> None:
        """Before the learners begin."""
        self._reached[:] = 0

    def reached(self, b: int) -> bool:
        """Whether all learners have reached stage b."""
        return bool((self._reached[: self._replicas.count, 0] > b).all())

    def finite(self, b: int) -> bool:
        """Whether all losses, and all gradients of weights that stage b has a part of, are finite; it is reached."""
        learners, extents = range(self._replicas.count), self._stages[b].extents
        with np.errstate(over="ignore", invalid="ignore"):
            losses = all(math.isfinite(self._loss(i)) for i in learners) if b == 0 else True
            return losses and all(math.isfinite(self._square(i, *each)) for i in learners for each in extents)
