"""The meter: one rank's times of iterations, until the time of an iteration is known well enough."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibow.bounds import NotNegative, Positive

from .tuner import WindowSpan

WARM_UP = 3  # iterations after a change: caches, memory that is touched for the first time
BLOCKS = 6
LEAST = 2 * BLOCKS  # iterations of a window
STRAY = 8  # at most one time in so many is left out


@dataclass(frozen=True)
class Estimate:
    """Seconds, and their standard error."""

    seconds: Positive
    error: NotNegative

    @property
    def relative(self) -> float:
        return self.error / self.seconds


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates of the same time."""
    n = len(estimates)
    return Estimate(sum(e.seconds / n for e in estimates), math.hypot(*(e.error / n for e in estimates)))


@dataclass(frozen=True)
class Reading:
    """A rank's estimates after `elapsed` seconds. `own`: its work in an iteration; `whole`: all of the iteration."""

    own: Estimate
    whole: Estimate
    elapsed: float


def enough(readings: Sequence[Reading | None], span: WindowSpan) -> bool:
    """Whether a window may close: every rank's times are precise enough, or the time is up. The same on every rank."""
    known = [reading for reading in readings if reading is not None]
    if len(known) < len(readings):
        return False
    return all(
        max(each.own.relative, each.whole.relative) <= span.precision and each.elapsed >= span.least for each in known
    ) or any(each.elapsed >= span.most for each in known)


class Meter:
    """Receives each iteration's times from the window's first one on, and evaluates them ever more rarely."""

    def __init__(self, span: WindowSpan):
        self._span = span
        self._skipped = 0
        self._check = LEAST
        self._elapsed = 0.0
        self._own = list[float]()
        self._whole = list[float]()

    def add(self, own: float, whole: float) -> bool:
        """Enters an iteration's times in seconds; returns whether to collect all ranks' readings now.

        `own`: this rank's data, batches and update, waiting for other ranks left out. `whole`: from the iteration's
        begin to the next one's; leave out those with an evaluation or a checkpoint. Times not above 0 are ignored.
        """
        if self._skipped < WARM_UP:
            self._skipped += 1
            return False
        if 0.0 < own < math.inf and 0.0 < whole < math.inf:
            self._own.append(own)
            self._whole.append(whole)
            self._elapsed += whole
        if len(self._own) < self._check or self._elapsed < self._span.least:
            return False
        self._check = len(self._own) + len(self._own) // 4  # a look costs more and more, but not an iteration
        reading = self.reading()
        return reading is not None and enough([reading], self._span)

    def reading(self) -> Reading | None:
        """The estimates so far; None while there are too few times."""
        if len(self._own) < LEAST:
            return None
        return Reading(estimate(self._own), estimate(self._whole), self._elapsed)


def estimate(times: Sequence[float]) -> Estimate:
    """The mean of `times` (at least LEAST, in their order) without stray ones, and its standard error.

    Not the median: if learners share cores, some iterations are slow, and images/s depend on the mean. A stray time
    lies beyond Tukey's outer fence, Q3 + 3 (Q3 - Q1) (Exploratory Data Analysis, 1977, ch. 2). At most one in STRAY is
    left out: more frequent ones belong to the iteration. Neighbouring times are alike, so the error is at least that of
    the means of a few blocks in a row (batch means: Schmeiser, Operations Research 30(3), 1982).
    """
    array = np.array(times)
    n = len(times)
    ordered = np.sort(array)
    q1 = ordered[n // 4]
    q3 = ordered[-(n // 4) - 1]
    kept = array[array <= max(q3 + 3 * (q3 - q1), ordered[-(n // STRAY) - 1])]
    means = kept[len(kept) % BLOCKS :].reshape(BLOCKS, -1).mean(axis=1)
    error = max(kept.std(ddof=1) / len(kept) ** 0.5, means.std(ddof=1) / BLOCKS**0.5)
    return Estimate(float(kept.mean()), float(error))
