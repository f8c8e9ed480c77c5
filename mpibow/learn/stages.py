"""The stages of the learners' passes: what is done may be sent while they go on, and they wait for what comes back."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from mpibow.graph import PAUSE, Array, Plan
from mpibow.graph.bound import Signals
from mpibow.graph.stages import stages_of, steps_in

from .replica import Replicas

LINE = 8  # words of a cache line: learners do not share one
STALL = PAUSE + 6e-5  # seconds: a pause, and what the system takes to wake up


class Stages:
    """Stages of a training plan (graph/stages.py), the number of those that each learner has reached, and the turns
    that they are opened for.

    `loss(i)` and `square(i, start, stop)` are learner i's summed loss, and |gradient|^2 of weights, in this pass.
    """

    def __init__(
        self, plan: Plan, replicas: Replicas, chunk: int, count: int, loss: Callable[[int], float],
        square: Callable[[int, int, int], float],
    ) -> None:  # fmt: skip
        self._replicas, self._chunk, self._loss, self._square = replicas, chunk, loss, square
        self._stages = stages_of(plan, replicas.size, chunk, count)
        self._reached = np.zeros((replicas.capacity, LINE), np.int64)  # of each row the first word
        self._pauses = np.zeros((replicas.capacity, LINE), np.int64)
        self._opened, self._goal = np.zeros((len(self._stages), LINE), np.int64), np.zeros(1, np.int64)
        self.chunks: Sequence[Sequence[range]] = [stage.chunks for stage in self._stages]
        self.needed: Sequence[int] = steps_in(plan, self._stages, replicas.size, chunk)[0]

    def signals(self, plan: Plan, i: int) -> Signals:
        """Learner i's in `plan`."""
        first, last = steps_in(plan, self._stages, self._replicas.size, self._chunk)
        before = dict[int, list[tuple[Array, Array, Array]]]()
        for b, step in enumerate(first):
            before.setdefault(step, []).append((self._opened[b, :1], self._goal, self._pauses[i, :1]))
        ends = np.maximum.accumulate(last)
        return Signals({int(step): (self._reached[i, :1], b + 1) for b, step in enumerate(ends)}, before)

    def begin(self) -> None:
        """Before the learners begin."""
        self._reached[:] = 0

    @property
    def words(self) -> Array:
        return self._reached[: self._replicas.count]

    def reached(self, b: int) -> bool:
        """Whether all learners have reached stage b."""
        return bool((self.words[:, 0] > b).all())

    def finite(self, b: int) -> bool:
        """Whether all losses, and all gradients of weights that stage b has a part of, are finite; it is reached."""
        learners = range(self._replicas.count)
        extents = self._stages[b].extents
        with np.errstate(over="ignore", invalid="ignore"):
            losses = b > 0 or all(math.isfinite(self._loss(i)) for i in learners)
            return losses and all(math.isfinite(self._square(i, *each)) for i in learners for each in extents)

    def shut(self, turn: int) -> None:
        """The next passes wait, where they first touch a weight of a stage, until it is opened for this turn."""
        self._goal[0] = turn

    def open(self, b: int, turn: int) -> None:
        self._opened[b, 0] = turn

    def stalled(self) -> float:
        """The seconds, about, that the learner which waited longest has done so since it was asked last."""
        most = int(self._pauses.max())
        self._pauses[:] = 0
        return most * STALL
