"""The stages of passes: chunks of the flat array, by the step behind which their gradients are there.

A stage whose gradients are done may be sent while the backward pass goes on. The next forward pass waits for each
stage until its new weights have come.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .bound import Signals
from .graph import Array
from .kernel import PAUSE
from .steps import gradient, weight

if TYPE_CHECKING:
    from .plan import Plan

LINE = 8  # words of a cache line: learners do not share one
STALL = PAUSE + 6e-5  # seconds: a pause, and what the system takes to wake up


@dataclass(frozen=True)
class Stage:
    """Chunks whose weights no step reads, and whose gradients none writes, behind step `step` of the plan.

    `extents` are the elements of all weights that these chunks have a part of.
    """

    step: int
    chunks: tuple[range, ...]
    extents: tuple[tuple[int, int], ...]


def steps_of(plan: "Plan", size: int, chunk: int) -> tuple[Array, Array]:
    """(chunks,) each: the first and last step that touch a weight, or its gradient, of each chunk of [0, size).

    Where none does: the number of steps, and -1.
    """
    steps = plan.program.steps
    root = plan.program.root
    last = plan.program.last()
    first = {root(name): i for i, step in reversed([*enumerate(steps)]) for name in step.touches}
    shape = -(-size // chunk)
    begins = np.full(shape, len(steps))
    ends = np.full(shape, -1)
    for span in plan.layout.spans:
        if span.offset < size:
            names = weight(span.name), gradient(weight(span.name))
            part = slice(span.offset // chunk, (span.offset + span.size - 1) // chunk + 1)
            begins[part] = np.minimum(begins[part], min(first.get(name, len(steps)) for name in names))
            ends[part] = np.maximum(ends[part], max(last.get(name, -1) for name in names))
    return begins, ends


def stages_of(plan: "Plan", size: int, chunk: int, count: int) -> tuple[Stage, ...]:
    """Stages of elements [0, size), in the order in which the backward pass ends them; each chunk is in one.

    Each has up to 1 / `count` of the chunks, or those of a single step: there may be up to twice as many.
    """
    _, steps = steps_of(plan, size, chunk)
    ends = list[int]()
    held = 0
    for step, chunks in zip(*np.unique(steps, return_counts=True), strict=True):
        if ends and (held + chunks) * count <= len(steps):
            ends.pop()
        else:
            held = 0
        ends.append(int(step))
        held += int(chunks)
    stages = []
    begin = -2
    for end in ends:
        numbers = np.flatnonzero((begin < steps) & (steps <= end))
        runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
        chunks = tuple(range(int(run[0]), int(run[-1]) + 1) for run in runs)
        extents = tuple(_extent(plan, part.start * chunk, part.stop * chunk) for part in chunks)
        stages.append(Stage(end, chunks, extents))
        begin = end
    return tuple(stages)


def steps_in(plan: "Plan", stages: Sequence[Stage], size: int, chunk: int) -> tuple[list[int], list[int]]:
    """The first and last step of each of these stages in a plan of the same layout, perhaps of shorter sequences."""
    begins, ends = steps_of(plan, size, chunk)
    return (
        [min(int(begins[part.start : part.stop].min()) for part in stage.chunks) for stage in stages],
        [max(int(ends[part.start : part.stop].max()) for part in stage.chunks) for stage in stages],
    )


def _extent(plan: "Plan", start: int, stop: int) -> tuple[int, int]:
    """The elements of all weights that lie in part in [start, stop)."""
    spans = [span for span in plan.layout.spans if span.offset < stop and span.offset + span.size > start]
    return min(span.offset for span in spans), max(span.offset + span.size for span in spans)


class Stages:
    """Stages of a training plan (graph/stages.py): `chunks` of the flat array, in the order in which backward passes
    end them; the number of those that each learner has reached; and the turns that they are `opened` for, by their
    rows' first words.

    For each stage `extents` are the elements [start, stop) of all weights that it has a part of, `needed` is the first
    step that reads its weights.
    """

    def __init__(
        self, plan: "Plan", size: int, chunk: int, count: int, gradients: Array,
        losses: Callable[[], Sequence[Sequence[Array]]],
    ):  # fmt: skip
        """About `count` stages of elements [0, size) of `gradients` (k or more, size or more). `losses` gives each of k
        learners' losses of its last batch, of every plan that it has."""
        self._size = size
        self._chunk = chunk
        self.gradients = gradients
        self._losses = losses
        self._stages = stages_of(plan, size, chunk, count)
        self._reached, self._pauses = np.zeros((2, len(gradients), LINE), np.int64)  # of each row the first word
        self.opened = np.zeros((len(self._stages), LINE), np.int64)
        self._goal = np.zeros(1, np.int64)
        self.chunks: Sequence[Sequence[range]] = [stage.chunks for stage in self._stages]
        self.extents = [stage.extents for stage in self._stages]
        self.needed: Sequence[int] = steps_in(plan, self._stages, size, chunk)[0]

    def signals(self, plan: "Plan", i: int) -> Signals:
        """Learner i's in `plan`."""
        first, last = steps_in(plan, self._stages, self._size, self._chunk)
        before = dict[int, list[tuple[Array, Array, Array]]]()
        for b, step in enumerate(first):
            before.setdefault(step, []).append((self.opened[b, :1], self._goal, self._pauses[i, :1]))
        ends = np.maximum.accumulate(last)
        return Signals({int(step): (self._reached[i, :1], b + 1) for b, step in enumerate(ends)}, before)

    def begin(self) -> None:
        """Before the learners begin."""
        self._reached[:] = 0

    def learners(self) -> tuple[Array, Array]:
        """Two arrays about the k learners. (k, n): a row's first word counts the stages whose weights that learner
        reads no more in this iteration, and whose gradients it writes no more. (m, 3): a row for each array of losses,
        with its address, its size in words of 32 bits, and the words of one loss. A learner has several such arrays
        where it has several plans: one of them has this iteration's losses, the others have earlier ones.
        """
        losses = self._losses()
        found = [(each.ctypes.data, each.nbytes // 4, each.itemsize // 4) for own in losses for each in own]
        return self._reached[: len(losses)], np.array(found)

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
