"""Frozen weights that are trained from some epoch on: the epochs, the changes then, and the lines of the log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mpibow.graph.graph import Array
from mpibow.graph.layout import Span
from mpibow.job import Job
from mpibow.learn.learners import Learners
from mpibow.optim.groups import frozen_for
from mpibow.run.state import State

NAMED = 6  # weights that a line lists


class Stages:
    """All ranks have one, and reach a stage at the same iteration. `state` is the present content of a checkpoint."""

    def __init__(self, job: Job, state: State, learners: Learners) -> None:
        self.state, self._job, self._learners = state, job, learners
        self._left = [stage for stage in job.stages if stage[1] > state.replicas.size]

    @property
    def centre(self) -> Array:
        """The centre (layout.size,), with frozen weights."""
        return self.state.replicas.whole(self.state.rule.centre)

    def reached(self, epoch: float) -> bool:
        """Whether more weights are to be trained from `epoch` on."""
        return bool(self._left) and self._left[0][0] <= epoch

    def begin(self, epoch: float, k: int) -> str:
        """Trains them on all k learners; returns a line for the log. Averaging goes on. Nothing may be under way."""
        before, state = self.state.replicas.size, self.state
        while self.reached(epoch):
            _, size = self._left.pop(0)
        state.grow(size, k)
        plan = self._job.training_plan(epoch)
        self._learners.replan(plan)
        self.state = replace(state, plan=plan)
        spans = [span for span in plan.layout.spans if before <= span.offset < size]
        return f"epoch {epoch:.2f}: {_listed(spans)} are trained from here on"


def frozen_told(job: Job, epoch: float) -> list[str]:
    """Lines of the weights that are frozen at `epoch`, one for each length of time."""
    found = dict[float, list[Span]]()
    for span in job.layout.spans:
        length = frozen_for(job.config.update.groups, span.name)
        if length > epoch:
            found.setdefault(length, []).append(span)
    return [
        f"frozen{'' if math.isinf(length) else f' until epoch {length:g}'}: {_listed(spans)}"
        for length, spans in sorted(found.items())
    ]


def _listed(spans: Sequence[Span]) -> str:
    count, names = sum(math.prod(span.shape) for span in spans), [span.name for span in spans]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{count:,} weights ({', '.join(names[:NAMED])}{more})"
