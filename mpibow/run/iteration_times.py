"""IterationTimes: how long a rank's iterations take by the clock, each from its begin to the next one's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class IterationTimes:
    """`waited` returns the seconds that this rank's learners have waited for other ranks so far."""

    def __init__(self, waited: Callable[[], float]) -> None:
        self._waited = waited
        self._last: tuple[float, float] | None = None  # the clock and the seconds waited at the beginning of the lap
        self._aside = 0.0

    def lap(self) -> tuple[float, float] | None:
        """Ends a lap and begins the next: its seconds without waiting, and all of them; None when the first begins."""
        now, waited, last = time.perf_counter(), self._waited(), self._last
        aside, self._last, self._aside = self._aside, (now, waited), 0.0
        if last is None:
            return None
        whole = now - last[0] - aside
        return whole - (waited - last[1]), whole

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leaves out work that is not part of every iteration, and the waiting in it."""
        begin, waited = time.perf_counter(), self._waited()
        yield
        self._aside += time.perf_counter() - begin
        if self._last is not None:
            self._last = self._last[0], self._last[1] + self._waited() - waited
