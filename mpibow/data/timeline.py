"""The timeline: how many learners each rank has, from which iteration on. All ranks hold the same one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mpibow.tune import Counts


@dataclass(frozen=True)
class Change:
    """From `iteration` on, which begins at sample `position`, ranks have `counts` learners.

    `execution` is how a GPU's run; '' on a host, and where that is not said.
    """

    iteration: int
    position: int
    counts: Counts
    execution: str = ""


@dataclass(frozen=True)
class Timeline:
    """Changes in order; the first is at iteration 0 or where a run was resumed with other counts."""

    batch: int
    changes: tuple[Change, ...]

    def counts(self, iteration: int) -> Counts:
        """Learners by rank at `iteration`."""
        return self.change(iteration).counts

    def learners(self, iteration: int) -> int:
        """Learners over all ranks at `iteration`."""
        return sum(self.counts(iteration))

    def position(self, iteration: int) -> int:
        """Samples consumed before `iteration`."""
        change = self.change(iteration)
        return change.position + (iteration - change.iteration) * sum(change.counts) * self.batch

    def announce(self, iteration: int, counts: Counts, execution: str | None = None) -> Timeline:
        """The timeline with `counts` from `iteration` on, which must lie behind all that was announced before.

        Without `execution` that of before stays.
        """
        assert iteration > self.changes[-1].iteration
        assert len(counts) == len(self.changes[-1].counts)
        assert min(counts) >= 1, "a rank keeps at least one learner"
        execution = self.changes[-1].execution if execution is None else execution
        change = Change(iteration, self.position(iteration), counts, execution)
        return replace(self, changes=(*self.changes, change))

    def executed(self, by: Callable[[str], str]) -> Timeline:
        """The timeline with `by` of every change's execution."""
        return replace(self, changes=tuple(replace(change, execution=by(change.execution)) for change in self.changes))

    def change(self, iteration: int) -> Change:
        """What holds at `iteration`."""
        last = self.changes[-1]
        if last.iteration <= iteration:  # nearly always, and this is asked for every slot
            return last
        return next(change for change in reversed(self.changes) if change.iteration <= iteration)


def fixed(batch: int, counts: Counts, iteration: int = 0, position: int = 0, execution: str = "") -> Timeline:
    """The same `counts` for ever."""
    return Timeline(batch, (Change(iteration, position, counts, execution),))
