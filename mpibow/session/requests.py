"""Requests of a rank to all ranks between iterations, announced in an all-reduce and settled together."""

from __future__ import annotations

from dataclasses import replace

from mpibow.run.coordinator import Outcome, Request, settle_requests
from mpibow.session.opening import Parts
from mpibow.session.saving import Saver
from mpibow.tune import Decision


class Requests:
    """Every rank has one and calls it alike. `asked`: some rank has a request, as all read in the same all-reduce."""

    def __init__(self, parts: Parts, rank: int, saver: Saver) -> None:
        self._stop, self._rank, self._saver, self._reporter = parts.job.config.stop, rank, saver, parts.reporter
        self._resets, self._tuning, self._talk = parts.resets, parts.tuning, parts.synchroniser.talk
        self.asked = parts.start.due[0]

    def now(self, signal: str) -> Request:
        """This rank's requests now, on rank 0 with those of its clock."""
        stop = signal or self._reporter.stop
        if self._rank == 0:
            stop = stop or self._stop.overdue(self._reporter.clock())
        return Request(stop, self._saver.overdue(), self._resets.due, self._tuning.asks)

    def settle(self, signal: str) -> tuple[Outcome, Decision | None]:
        """The outcome of all ranks' requests, and the tuner's decision, if any."""
        requests = self._talk(replace(self.now(signal), reading=self._tuning.reading()))
        outcome, self.asked = settle_requests(requests), False
        if outcome.save:
            self._saver.agreed()
        return outcome, self._tuning.conclude([request.reading for request in requests])
