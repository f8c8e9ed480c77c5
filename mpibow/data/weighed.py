"""Samples to train on with a weight each: data of any kind, and the weights as one more array of a slot."""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import numpy as np

from mpibow.data.dataset import SAMPLE_WEIGHT, Array, Dataset, Drawn, Inputs, NamedSamples, Samples
from mpibow.data.split import Divisible

T = TypeVar("T", bound=Samples)


class Weighed:
    """`data` and `sample_weight` (n,) float32; the weights are the last array to fill."""

    def __init__(self, data: Any, sample_weight: Array) -> None:
        self.data, self.sample_weight = data, sample_weight
        self.name, self.count = data.name, data.count

    def read(self, samples: Array, *arrays: Array) -> None:
        *own, weights = arrays
        self.data.read(samples, *own)
        self.sample_weight.take(samples, out=weights, mode="clip")

    def strata(self) -> Array:
        """The strata for `data.split`."""
        assert isinstance(self.data, Divisible)
        return self.data.strata()

    def part(self, rows: Array) -> Any:
        """Samples `rows` (n,) as a data set, with their weights."""
        return type(self)(self.data.part(rows), self.sample_weight[rows])


class WeighedImages(Weighed):
    """Images with labels: a `Dataset`."""

    def __init__(self, data: Dataset, sample_weight: Array) -> None:
        super().__init__(data, sample_weight)
        self.shape, self.dtype, self.classes = data.shape, data.dtype, data.classes

    @property
    def mean(self) -> tuple[float, ...]:
        found: tuple[float, ...] = self.data.mean
        return found

    @property
    def std(self) -> tuple[float, ...]:
        found: tuple[float, ...] = self.data.std
        return found


class WeighedArrays(Weighed):
    """Arrays by name: `NamedSamples`."""

    def __init__(self, data: NamedSamples, sample_weight: Array) -> None:
        super().__init__(data, sample_weight)
        self.inputs: Inputs = {**data.inputs, SAMPLE_WEIGHT: ((), np.dtype(np.float32))}


class _Drawn(Weighed):
    """Weighed samples that are new in every epoch."""

    @property
    def threads(self) -> int:
        found: int = self.data.threads
        return found

    def draw(self, samples: Array, counters: Array, *arrays: Array) -> None:
        """To train on."""
        *own, weights = arrays
        self.data.draw(samples, counters, *own)
        self.sample_weight.take(samples, out=weights, mode="clip")


class DrawnImages(_Drawn, WeighedImages):
    """A `Dataset`, `Drawn`."""


class DrawnArrays(_Drawn, WeighedArrays):
    """`NamedSamples`, `Drawn`."""


def weighed(data: Samples, sample_weight: Array) -> Samples:
    """`data`, which are `Divisible`, with these weights (n,) float32."""
    if isinstance(data, NamedSamples):
        return (DrawnArrays if isinstance(data, Drawn) else WeighedArrays)(data, sample_weight)
    return (DrawnImages if isinstance(data, Drawn) else WeighedImages)(data, sample_weight)


def checksum(data: Samples) -> str | None:
    """The SHA-256 of the weights of `data`; None where they have none."""
    return hashlib.sha256(data.sample_weight.tobytes()).hexdigest() if isinstance(data, Weighed) else None


def unweighed(data: T) -> T:
    """`data` without weights."""
    found: T = data.data if isinstance(data, Weighed) else data
    return found
