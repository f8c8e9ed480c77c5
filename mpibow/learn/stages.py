"""The stages of the learners' passes: what is done may be sent while they go on, and they wait for what comes back."""

from collections.abc import Callable, Sequence

import numpy as np

from mpibow.graph import PAUSE, Array, Plan
from mpibow.graph.bound import Signals
from mpibow.graph.stages import stages_of, steps_in

from .replica import Replicas

LINE = 8  # words of a cache line: learners do not share one
STALL = PAUSE + 6e-5  # seconds: a pause, and what the system takes to wake up


class Stages:
    """Stages of a training plan (graph/stages.py): `chunks` of the flat array, in the order in which backward passes
    end them; the number of those that each learner has reached; and the turns that they are `opened` for, by their
    rows' first words.

    For each stage `extents` are the elements [start, stop) of all weights that it has a part of, `needed` is the first
    step that reads its weights. `losses(i)` are learner i's losses of its last batch, of every plan that it has.
    """

    def __init__(
        self, plan: Plan, replicas: Replicas, chunk: int, count: int, losses: Callable[[int], Sequence[Array]]
    ) -> None:
        self._replicas, self._chunk, self._losses = replicas, chunk, losses
        self._stages = stages_of(plan, replicas.size, chunk, count)
        self._reached = np.zeros((replicas.capacity, LINE), np.int64)  # of each row the first word
        self._pauses = np.zeros((replicas.capacity, LINE), np.int64)
        self.opened, self._goal = np.zeros((len(self._stages), LINE), np.int64), np.zeros(1, np.int64)
        self.chunks: Sequence[Sequence[range]] = [stage.chunks for stage in self._stages]
        self.extents = [stage.extents for stage in self._stages]
        self.gradients = replicas.all_gradients
        self.needed: Sequence[int] = steps_in(plan, self._stages, replicas.size, chunk)[0]

    def signals(self, plan: Plan, i: int) -> Signals:
        """Learner i's in `plan`."""
        first, last = steps_in(plan, self._stages, self._replicas.size, self._chunk)
        before = dict[int, list[tuple[Array, Array, Array]]]()
        for b, step in enumerate(first):
            before.setdefault(step, []).append((self.opened[b, :1], self._goal, self._pauses[i, :1]))
        ends = np.maximum.accumulate(last)
        return Signals({int(step): (self._reached[i, :1], b + 1) for b, step in enumerate(ends)}, before)

    def begin(self) -> None:
        """Before the learners begin."""
        self._reached[:] = 0

    @property
    def reached(self) -> Array:
        """(k, n): of each row the first word is the number of stages whose weights that learner reads no more in this
        iteration, and whose gradients it writes no more."""
        return self._reached[: self._replicas.count]

    def losses(self) -> Array:
        """(n, 3): the address of losses of the learners, and how many words of 32 bits they and each are. One array of
        each learner has this iteration's losses, the others have those of earlier ones."""
        arrays = [each for i in range(self._replicas.count) for each in self._losses(i)]
        return np.array([(each.ctypes.data, each.nbytes // 4, each.itemsize // 4) for each in arrays])

    def shut(self, turn: int) -> None:
        """The next passes wait, where they first touch a weight of a stage, until it is opened for this turn, or for a
        later one."""
        self._goal[0] = turn

    def open(self, turn: int) -> None:
        """Opens all stages."""
        self.opened[:, 0] = turn

    def stalled(self) -> float:
        """The seconds, about, that the learner which waited longest has done so since it was asked last."""
        most = int(self._pauses.max())
        self._pauses[:] = 0
        return most * STALL
