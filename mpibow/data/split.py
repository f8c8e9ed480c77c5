"""Validation data that are split off the training data: a fraction of every class, by seed."""

from typing import Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from mpibow.errors import ConfigError

from .dataset import Array, Samples

SORTED = 1 << 22  # samples that are sorted at once
T = TypeVar("T", bound=Samples)


@runtime_checkable
class Divisible(Protocol):
    """Samples that can be divided by number, the same share of each class where `strata()` returns theirs (count,)."""

    def part(self, rows: Array) -> Self:
        """Samples `rows` (n,) int64 as a data set of their own, numbered from 0."""


@runtime_checkable
class Continuous(Protocol):
    """Samples that lie in a stream, and overlap."""

    def divided(self, fraction: float) -> tuple[Self, Self]:
        """The samples of the stream's beginning, and of its end, which is that share."""


def split(data: T, fraction: float, seed: int) -> tuple[T, T]:
    """The samples to train on and those to validate on, both in the order of `data`. Raises ConfigError."""
    if not 0 < fraction < 1:
        raise ConfigError(f"data.validation: a fraction must be above 0 and below 1, got {fraction:g}")
    if isinstance(data, Continuous):
        return data.divided(fraction)
    if not isinstance(data, Divisible):
        raise ConfigError(
            f"data.validation: a fraction is split off records or arrays, {data.name} is neither; "
            "give validation data of their own"
        )
    held = held_out(strata_of(data), fraction, seed)
    if held.all() or not held.any():
        raise ConfigError(
            f"data.validation: must leave samples on both sides, {fraction:g} of {data.name}'s {data.count:,} is "
            f"{np.count_nonzero(held):,}"
        )
    return data.part(np.flatnonzero(~held)), data.part(np.flatnonzero(held))


def strata_of(data: Samples) -> Array:
    """Each sample's class (count,), all the same where there are none."""
    return data.strata() if hasattr(data, "strata") else np.zeros(data.count, np.int32)


def held_out(strata: Array, fraction: float, seed: int, at_once: int = SORTED) -> Array:
    """Which samples (n,) are validation data: `fraction` of every class, to the nearest sample or the next to it.

    Classes lie in a row, each in random order, and every 1/fraction-th sample of the row is taken; so of each `at_once`
    samples of larger data.
    """
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, len(strata)])))
    held = np.zeros(len(strata), bool)
    for first in range(0, len(strata), at_once):
        part = strata[first : first + at_once]
        row = np.lexsort((random.random(len(part)), part))
        passed = np.floor(np.arange(len(row) + 1) * fraction + 0.5)
        held[first + row[np.diff(passed) > 0]] = True
    return held
