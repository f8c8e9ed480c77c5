"""The pulse of a rank: its phase, and a count of its progress. The watchdog reads it once a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mpibow.comm.settings import Limits


class Pulse:
    """Written by working threads without a lock, as only its changes count. Without a watchdog it does nothing."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.phase = "start"  # of LEAST, or "" if nothing is watched
        self.beats = 0
        self.waiting = ""  # for the other ranks, in this call
        self.folder: Path | None = None  # the run's
        self.ranks: tuple[int, int] | None = None  # of the job and of this node, once they are known
        self.show: Callable[[], object] = lambda: None  # to the watchdogs of the other ranks, at once
        self.stop: Callable[[], None] = lambda: None  # ends the watchdog, if any

    def beat(self, phase: str = "") -> None:
        """Counts a step of progress; `phase` is the next phase, if it changes."""
        self.beats += 1
        if phase and phase != self.phase:
            self.phase = phase
            self.show()

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """The phase inside is `phase`."""
        before = self.phase
        self.beat(phase)
        try:
            yield
        finally:
            self.beat(before)
