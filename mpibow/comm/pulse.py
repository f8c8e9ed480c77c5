"""The pulse of a rank: what it is at, and how often it has made progress. The watchdog looks at it once a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mpibow.comm.settings import Limits


class Pulse:
    """Written by whoever works, without a lock: only changes of it count. Where no watchdog looks, it does nothing."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.phase = "start"  # of LEAST, or "" where nothing is watched
        self.beats = 0
        self.waiting = ""  # for the other ranks, in this call
        self.folder: Path | None = None  # the run's
        self.ranks: tuple[int, int] | None = None  # of the job and of this node, once they are known
        self.show: Callable[[], object] = lambda: None  # to the watchdogs of the other ranks, at once
        self.stop: Callable[[], None] = lambda: None  # ends the watchdog, if any

    def beat(self, phase: str = "") -> None:
        """Something is done; `phase` is what is done next, if that changes."""
        self.beats += 1
        if phase and phase != self.phase:
            self.phase = phase
            self.show()

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """What is inside is `phase`."""
        before = self.phase
        self.beat(phase)
        try:
            yield
        finally:
            self.beat(before)
