"""Statistics of the tables on averaging: paired differences and slopes over seeds, with bootstrap intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

Points = Sequence[tuple[float, float]]
Each = TypeVar("Each")

REPEATS, COVERS = 4000, 0.95


@dataclass(frozen=True)
class Interval:
    """A figure with its interval; `low` and `high` are NaN where one seed gives none."""

    value: float
    low: float
    high: float
    seeds: int

    def text(self, digits: int = 2, unit: float = 1.0) -> str:
        value = f"{self.value * unit:+.{digits}f}"
        return (
            value
            if math.isnan(self.low)
            else f"{value} [{self.low * unit:+.{digits}f}, {self.high * unit:+.{digits}f}]"
        )


def told(interval: Interval | None, digits: int = 2, unit: float = 100.0) -> str:
    """In points unless said otherwise; '' where there is none."""
    return "" if interval is None else interval.text(digits, unit)


def deviation(accuracies: Mapping[int, float]) -> str:
    return mean_and_deviation(list(accuracies.values()))


def slope(groups: Sequence[Points]) -> float:
    """Least squares of y over x within groups, each of which has a level of its own; NaN where no group's x differ."""
    above = below = 0.0
    for points in groups:
        if points:
            x, y = (np.array(each, np.float64) for each in zip(*points, strict=True))
            x -= x.mean()
            above, below = above + float(x @ (y - y.mean())), below + float(x @ x)
    return above / below if below > 0.0 else math.nan


def bootstrap(groups: Sequence[Each], figure: Callable[[Sequence[Each]], float], draw: int = 1) -> Interval:
    """`figure` of the groups, one a seed, and its percentile interval over resampled groups."""
    count, value = len(groups), figure(groups)
    if count < 2:
        return Interval(value, math.nan, math.nan, count)
    generator = np.random.default_rng(draw)
    picked = generator.integers(0, count, (REPEATS, count))
    found = np.array([figure([groups[i] for i in row]) for row in picked.tolist()])
    if np.isnan(found).all():
        return Interval(value, math.nan, math.nan, count)
    low, high = np.nanquantile(found, [(1 - COVERS) / 2, (1 + COVERS) / 2])
    return Interval(value, float(low), float(high), count)


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """The mean over seeds of ours - theirs, by seed, and its interval; None where they share no seed."""
    shared = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    return bootstrap(shared, lambda each: float(np.mean(each))) if shared else None


def noise_scale(gain: float, learners: int, batch: int) -> float:
    """The gradient noise scale in samples (B_simple of arXiv:1812.06162) that a gain between 1 and `learners` shows.

    From gain = (noise + signal) / (noise / learners + signal): noise / signal of a batch, times its samples.
    """
    return batch * (gain - 1.0) / (1.0 - gain / learners)


def reach(epochs: Sequence[float], accuracies: Sequence[float], target: float) -> float:
    """The fewest epochs at which the accuracy, linear in the logarithm of epochs between these, is `target`.

    The first of `epochs` where it is above already; twice the last, a number that quantiles can take, where none is.
    """
    if accuracies[0] >= target:
        return epochs[0]
    for (before, low), (after, high) in pairwise(zip(epochs, accuracies, strict=True)):
        if high >= target:
            return before * (after / before) ** ((target - low) / (high - low))
    return 2.0 * epochs[-1]


def mean_and_deviation(values: Sequence[float]) -> str:
    """In percent, of shares: the mean and, of several, the standard deviation over seeds."""
    mean = f"{100 * float(np.mean(values)):.2f}"
    return mean if len(values) < 2 else f"{mean} ± {100 * float(np.std(values, ddof=1)):.2f}"
