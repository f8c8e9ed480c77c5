"""The announcer carries out the tuner's decisions: every rank binds its learners, then all announce the change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mpibow.errors import CommunicationError
from mpibow.run.coordinator import Coordinator
from mpibow.run.tuning import Tuning
from mpibow.tune import Decision, as_sum

Talk = Callable[[Any], list[Any]]  # this rank's -> every rank's, by rank
Bind = Callable[[int, str], str | None]  # learners, execution -> why this rank can't have them; None: they are bound
Tell = Callable[[int, int, str], None]  # a rank, learners that it has no memory for, and why


class Announcer:
    """Every rank has one, alike. Learners are bound before their change is announced; those that there are stay."""

    def __init__(self, coordinator: Coordinator, rank: int, talk: Talk, bind: Bind, tell: Tell) -> None:
        self._coordinator, self._rank, self._talk, self._bind, self._tell = coordinator, rank, talk, bind, tell
        self._seconds = 0.0

    def follow(self, tuning: Tuning, tuned: Decision, iteration: int) -> Decision:
        """Announces `tuned`, or the decision of `tuning` instead where a rank can't have its learners. Returns it.

        All ranks call it alike; `iteration` is the one under way.
        """
        begin, coordinator = time.perf_counter(), self._coordinator
        while (lack := self._lack(tuned)) is not None:
            short, why = lack
            if tuned.execution:
                tuned = tuning.refused(f"rank {short}: {why}")
                continue
            self._tell(short, tuned.counts[short], why)
            if tuned.counts[short] <= coordinator.announced[short]:  # fused learners are bound anew, fewer as well
                return tuning.stay(coordinator.announced, f"rank {short}: {why}")
            tuned = tuning.without(short, tuned.counts[short])
        wanted = tuned.counts, tuned.execution or coordinator.execution
        if wanted != (coordinator.announced, coordinator.execution):
            coordinator.announce(iteration, *wanted)
            self._seconds += time.perf_counter() - begin  # a check that changes nothing does not count
        return tuned

    def seconds(self) -> float:
        """The seconds that the binding of coming learners took; later calls return 0."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _lack(self, tuned: Decision) -> tuple[int, str] | None:
        """The first rank that can't have its learners, and why; None where every rank has bound its own.

        Ranks also compare their decisions, so it is called for decisions that change nothing, too. Raises
        CommunicationError where decisions differ.
        """
        own = self._bind(tuned.counts[self._rank], tuned.execution or self._coordinator.execution)
        found = self._talk((f"{as_sum(tuned.counts)} {tuned.execution}".strip(), own))
        for rank, (wanted, _) in enumerate(found):
            if wanted != found[0][0]:
                raise CommunicationError(
                    f"rank {rank}: decided on learners {wanted}, rank 0 on {found[0][0]}, from the same times; start "
                    "all ranks with the same Python and mpibow"
                )
        return next(((rank, why) for rank, (_, why) in enumerate(found) if why is not None), None)
