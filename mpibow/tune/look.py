"""A look: estimates from its windows for all learners that ranks may have: a curve a rank, a speed for all ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot

from .history import Cores, Counts, Window
from .meter import Estimate, mean
from .tuner import Tuner

RECHECKS = 4  # windows of a look that try no new number of learners on any rank

Curve = Mapping[int, Estimate]  # learners of a rank -> seconds of an iteration if this rank were the slowest


@dataclass(frozen=True)
class Speed:
    """Learners' batches a second of all ranks, and the relative standard error."""

    rate: float
    relative: float


@dataclass(frozen=True)
class Look:
    """The estimates for learners within `limits`, the most of each rank, `cores` of which have one of their own.

    `tried` has the counts of every window in order, `curves` is by rank, `measured` has counts that ran together.
    """

    tried: tuple[Counts, ...]
    limits: Counts
    cores: Cores
    curves: tuple[Curve, ...]
    measured: Mapping[Counts, Speed]
    tuner: Tuner

    @classmethod
    def of(cls, windows: Sequence[Window], limits: Counts, cores: Cores, tuner: Tuner) -> "Look":
        curves = tuple(_curve(windows, rank, limit, tuner) for rank, limit in enumerate(limits))
        wholes = dict[Counts, list[Estimate]]()
        for window in windows:
            if fits(window.counts, limits):
                wholes.setdefault(window.counts, []).append(window.whole)
        measured = {counts: _speed(counts, _alike(each, tuner)) for counts, each in wholes.items()}
        return cls(tuple(window.counts for window in windows), limits, cores, curves, measured, tuner)

    @cached_property
    def may_recheck(self) -> bool:
        """Whether there is still time for windows in which no rank has a new number of learners."""
        seen = set[tuple[int, int]]()
        count = 0  # of such windows
        for counts in self.tried:
            pairs = set(enumerate(counts))
            count += pairs <= seen
            seen |= pairs
        return count < RECHECKS

    @cached_property
    def speeds(self) -> Mapping[Counts, Speed]:
        """The measured speeds, and those that the curves predict as long as there is time to measure them.

        Less the threshold where learners have no core of their own: that these are faster is less likely than chance.
        """
        promises = _promises(self.curves, self.tuner.precision) if self.may_recheck or not self.measured else {}
        speeds = {**promises, **self.measured}  # measured ones take precedence
        less = 1 - self.tuner.threshold
        return {
            counts: speed if fits(counts, self.cores) else Speed(less * speed.rate, speed.relative)
            for counts, speed in speeds.items()
        }

    @cached_property
    def best(self) -> Counts:
        return max(self.speeds, key=lambda counts: self.speeds[counts].rate)

    @cached_property
    def chosen(self) -> Counts:
        """The counts that it would settle on now."""
        return self.fewest(self.tuner.threshold)

    def fewest(self, threshold: float) -> Counts:
        """The fewest learners that are as good as the best, but for the threshold; of equally many the fastest."""
        needed = (1 - threshold) * max(speed.rate * (1 - speed.relative) for speed in self.speeds.values())
        good = [counts for counts, speed in self.speeds.items() if speed.rate >= needed]
        return min(good, key=lambda counts: (sum(counts), -self.speeds[counts].rate))


def fits(counts: Counts, limits: Cores) -> bool:
    return all(limit is None or k <= limit for k, limit in zip(counts, limits, strict=True))


def slowest(curves: Sequence[Curve], counts: Counts) -> Estimate:
    """The time of an iteration of `counts`: that of the slowest rank."""
    return max((curve[k] for curve, k in zip(curves, counts, strict=True)), key=lambda e: e.seconds)


def _curve(windows: Sequence[Window], rank: int, limit: int, tuner: Tuner) -> Curve:
    """t_r(k) + rest for the k <= limit that this rank has had."""
    found = dict[int, list[Estimate]]()
    for window in windows:
        own = window.own[rank]
        whole = Estimate(own.seconds + window.rest, max(own.error, window.whole.error))
        found.setdefault(window.counts[rank], []).append(whole)
    return {k: _alike(found[k], tuner) for k in sorted(found) if k <= limit}


def _speed(counts: Counts, whole: Estimate) -> Speed:
    return Speed(sum(counts) / whole.seconds, whole.relative)


def _alike(estimates: Sequence[Estimate], tuner: Tuner) -> Estimate:
    """The mean of the estimates that agree with the newest: the others are from before a change of speeds."""
    new = estimates[-1]
    margin = tuner.drift * new.seconds
    return mean([e for e in estimates if abs(e.seconds - new.seconds) <= max(margin, 3 * hypot(e.error, new.error))])


def _promises(curves: Sequence[Curve], precision: float) -> dict[Counts, Speed]:
    """The best counts for every length of an iteration: each rank has the most learners that finish in time."""
    speeds = {}
    for time in _levels([e.seconds for curve in curves for e in curve.values()], precision):
        counts = tuple(max((k for k, e in curve.items() if e.seconds <= time), default=0) for curve in curves)
        if min(counts) >= 1:
            speeds[counts] = _speed(counts, slowest(curves, counts))
    return speeds


def _levels(times: Sequence[float], margin: float) -> list[float]:
    """The largest of every group of times that differ by no more than a `margin`: no rank is left behind by chance."""
    first = 0.0
    levels = list[float]()
    for time in sorted(times):
        if levels and time <= first * (1 + margin):
            levels[-1] = time
        else:
            first = time
            levels.append(time)
    return levels
