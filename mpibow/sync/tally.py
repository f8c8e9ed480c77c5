"""The numbers sent beside the steps: requests to talk, losses and hits; on the host, or from a GPU's reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from mpibow.cuda.device.driver import Event, Stream
from mpibow.cuda.exchange.exchanges import Exchanges
from mpibow.graph.graph import Array
from mpibow.sync.rule import TAIL, Rule


@dataclass(frozen=True)
class Tally:
    """This rank's request to talk (0 or 1), summed losses and hits; then those of all ranks."""

    attention: float = 0.0
    loss: float = 0.0
    hits: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.attention + other.attention, self.loss + other.loss, self.hits + other.hits)


Late = tuple[float, float, bool]  # a learner's loss and hits, and whether all its results are finite


class Book:
    """Enters the results of a rank's learners, and reads those of all ranks: here a host's, which are there at once.

    With `enqueues` only `close` waits: all that follows an exchange is enqueued behind it, on `stream`.
    """

    enqueues = False
    stream: Stream | None = None

    def __init__(self) -> None:
        self.unsent = Tally()

    def attach(self) -> None:
        """The communication thread begins."""

    def join(self, beside: bool) -> None:
        """Work enqueued from now on waits for the learners' gradients, computed `beside` the last exchange or not."""

    def gather(self) -> None:
        """Called before an update: learners may report new results once it is over."""

    def begin(self) -> None:
        """An exchange begins."""

    def seconds(self) -> tuple[float, float] | None:
        """The seconds that learners stood still for exchanges, and that these took, on the device; None on a host."""
        return None

    def enter(self, tally: Tally, flat: Any) -> None:
        """This iteration's; into the last elements of `flat`, if it is sent."""
        self.unsent += tally
        if flat is not None:
            flat[-TAIL + 1 :] = self.unsent.attention, self.unsent.loss, self.unsent.hits  # astuple takes 30 us
            self.unsent = Tally()

    def sent(self, flat: Any) -> None:
        """`flat` was sent (None: nothing was), and all that follows from it is done or enqueued."""

    def close(self, flat: Any) -> Tally | None:
        """The results of all ranks, if anything was sent."""
        return None if flat is None else Tally(*flat[-TAIL + 1 :].tolist())

    def late(self) -> list[Late]:
        """The results of the iteration before, if they come only now; once."""
        return []

    def spoilt(self) -> dict[int, float]:
        """Learners whose late results, not read yet, are not finite, nor then their statistics; and their losses."""
        return {}

    def state(self) -> Array:
        """The numbers entered and not sent, (3,) float64, then every late result's loss, hits and |gradient|^2."""
        return np.array(astuple(self.unsent), np.float64)

    def load(self, state: Array) -> None:
        self.unsent = Tally(*state[:3].tolist())


class DeviceBook(Book):
    """Learners report in device memory; the host reads an iteration's reports when its exchange has ended.

    `count` returns the number of learners, `done` the events of their last gradients; `wait` waits for an event if
    ranks may be late.
    """

    enqueues = True

    def __init__(
        self, gpu: Any, rule: Rule, count: Callable[[], int], done: Callable[[], Sequence[Event]],
        wait: Callable[[Event], None] | None = None,
    ) -> None:  # fmt: skip
        self._gpu, self._flat, self._machine = gpu, gpu.flat, gpu.machine
        self._rule, self._count, self._done = rule, count, done
        self._wait = wait or (lambda event: event.synchronise())
        self.stream: Stream = self._machine.stream
        capacity = len(self._flat.reports)
        self._unsent = self._machine.zeros(3, "float64")
        self._reports = self._machine.zeros(self._flat.reports.shape, "float64")
        seen = self._machine.pinned(8 * (3 * capacity + 2), "what learners report")
        self._tail, self._seen = seen[:12].view(np.float32), seen[16:].view(np.float64).reshape(capacity, 3)
        self._event: Event | None = None
        self._entered = 0  # learners of the iteration under way
        self._late = list[Late]()
        self._exchanges = Exchanges(self.stream)

    def attach(self) -> None:
        self._machine.attach()

    def join(self, beside: bool) -> None:
        gradients = self._done()
        for event in gradients:
            self.stream.wait(event)
        self._exchanges.joined(gradients if beside else ())

    def begin(self) -> None:
        self._exchanges.begin()

    def seconds(self) -> tuple[float, float]:
        return self._exchanges.seconds()

    def gather(self) -> None:
        self._entered = self._count()
        rows = slice(0, self._entered)
        self._machine.driver.copy(self._reports[rows], self._flat.reports[rows], self.stream)
        if self._gpu.scale.record is not None:
            self._flat.follow_scale(self._flat.norms[rows], self._gpu.scale.record)

    def enter(self, tally: Tally, flat: Any) -> None:
        tail = None if flat is None else flat[len(flat) - TAIL + 1 :]
        self._flat.enter_reports(tally.attention, self._reports[: self._entered], self._unsent, tail)

    def sent(self, flat: Any) -> None:
        copy = self._machine.driver.copy
        if flat is not None:
            copy(self._tail, flat[len(flat) - TAIL + 1 :], self.stream)
        copy(self._seen[: self._entered], self._reports[: self._entered], self.stream)
        if self._rule.meter is not None:
            self._rule.meter.see()
        self._event = self._exchanges.end()

    def close(self, flat: Any) -> Tally | None:
        assert self._event is not None
        self._wait(self._event)
        if self._rule.meter is not None:
            self._rule.meter.seen()
        self._late = [_result(row) for row in self._seen[: self._entered].tolist()]
        return None if flat is None else Tally(*self._tail.tolist())

    def late(self) -> list[Late]:
        found, self._late = self._late, []
        return found

    def spoilt(self) -> dict[int, float]:
        return {i: loss for i, (loss, _, finite) in enumerate(self._late) if not finite}

    def state(self) -> Array:
        rows = [[loss, hits, 0.0 if finite else math.nan] for loss, hits, finite in self._late]
        return np.concatenate([self._machine.host(self._unsent), np.array(rows, np.float64).reshape(-1)])

    def load(self, state: Array) -> None:
        self._machine.put(self._unsent, state[:3])
        self._late = [_result(row) for row in state[3:].reshape(-1, 3).tolist()]


def _result(row: Sequence[float]) -> Late:
    loss, hits, norm = row
    return loss, hits, math.isfinite(norm)
