"""The timeline: how many learners each rank has, from which iteration on. All ranks hold the same one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, replace

from mpibow.tune import Counts


@dataclass(frozen=True)
class Change:
    """From `iteration` on, which begins at sample `position`, ranks have `counts` learners.

    `execution` is how a GPU's learners run; '' on a host, and where unspecified.
    """

    iteration: int
    position: int
    counts: Counts
    execution: str = ""

    def before(self, iteration: int, batch: int) -> int:
        """Samples consumed before `iteration`, where this holds until then."""
        return self.position + (iteration - self.iteration) * sum(self.counts) * batch


@dataclass(frozen=True)
class Timeline:
    """Changes in order. The first holds at the earliest iteration that can still be requested."""

    batch: int
    changes: tuple[Change, ...]

    def counts(self, iteration: int) -> Counts:
        """Learners by rank at `iteration`."""
        return self.change(iteration).counts

    def position(self, iteration: int) -> int:
        """Samples consumed before `iteration`."""
        return self.change(iteration).before(iteration, self.batch)

    def announce(self, iteration: int, counts: Counts, execution: str | None = None) -> Timeline:
        """The timeline with `counts` from `iteration` on, which must lie behind all that was announced before.

        Without `execution` the previous one stays.
        """
        execution = self.changes[-1].execution if execution is None else execution
        change = following(self.batch, self.changes[-1], iteration, counts, execution)
        return replace(self, changes=(*self.changes, change))

    def executed(self, ways: Collection[str]) -> Timeline:
        """The timeline with executions of `ways`, a device's: the first of them, '' without any, in place of others."""
        first = next(iter(ways), "")
        changes = (each if each.execution in ways else replace(each, execution=first) for each in self.changes)
        return replace(self, changes=tuple(changes))

    def change(self, iteration: int) -> Change:
        """The change that holds at `iteration`."""
        last = self.changes[-1]
        if last.iteration <= iteration:  # nearly always, and this runs for every slot
            return last
        place = self._place(iteration)
        assert place >= 0, f"iteration {iteration} lies before the timeline"
        return self.changes[place]

    def since(self, iteration: int) -> Timeline:
        """The timeline without the changes that `iteration` and later ones do not need."""
        return replace(self, changes=self.changes[max(self._place(iteration), 0) :])

    def until(self, iteration: int) -> Timeline:
        """The timeline without the changes behind `iteration`."""
        return replace(self, changes=self.changes[: self._place(iteration) + 1])

    def followed(self, by: Timeline) -> Timeline:
        """The timeline, then the changes of `by` that lie behind its last one."""
        changes = list(self.changes)
        for change in by.changes[by._place(self.changes[-1].iteration) + 1 :]:
            changes.append(following(self.batch, changes[-1], change.iteration, change.counts, change.execution))
        return replace(self, changes=tuple(changes))

    def _place(self, iteration: int) -> int:
        """The index in `changes` of the one that holds at `iteration`, -1 where that lies before all."""
        return bisect_right(self.changes, iteration, key=lambda change: change.iteration) - 1


def fixed(batch: int, counts: Counts, iteration: int = 0, position: int = 0, execution: str = "") -> Timeline:
    """The same `counts` for ever."""
    return Timeline(batch, (Change(iteration, position, counts, execution),))


def following(batch: int, last: Change, iteration: int, counts: Counts, execution: str) -> Change:
    """The change to `counts` at `iteration`, which must lie behind the `last` one."""
    assert iteration > last.iteration
    assert len(counts) == len(last.counts)
    assert min(counts) >= 1, "a rank keeps at least one learner"
    return Change(iteration, last.before(iteration, batch), counts, execution)
