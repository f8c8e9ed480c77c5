"""Samples to train on with a weight each: data of any kind, and the weights as one more array of a slot."""

import hashlib
from typing import Any, TypeVar

import numpy as np

from .dataset import SAMPLE_WEIGHT, Array, Derived, Drawn, Inputs, NamedSamples, Samples
from .split import strata_of

T = TypeVar("T", bound=Samples)


class Weighed(Derived):
    """`data`, which are `Divisible`, and `sample_weight` (n,) float32: `Samples` of the same kind.

    The weights are the last array to fill.
    """

    def __init__(self, data: Any, sample_weight: Array):
        self.sample_weight = sample_weight
        if isinstance(data, NamedSamples):
            self.data: Any = data
            self.name = data.name
            self.count = data.count
            self.inputs: Inputs = {**data.inputs, SAMPLE_WEIGHT: ((), np.dtype(np.float32))}
        else:
            super().__init__(data)
        if isinstance(data, Drawn):
            self.threads = data.threads
            self.draw = self._draw

    def read(self, samples: Array, *arrays: Array) -> None:
        *own, weights = arrays
        self.data.read(samples, *own)
        self.sample_weight.take(samples, out=weights, mode="clip")

    def _draw(self, samples: Array, counters: Array, *arrays: Array) -> None:
        """To train on."""
        *own, weights = arrays
        self.data.draw(samples, counters, *own)
        self.sample_weight.take(samples, out=weights, mode="clip")

    def strata(self) -> Array:
        """The strata for `data.split`."""
        return strata_of(self.data)

    def part(self, rows: Array) -> "Weighed":
        """Samples `rows` (n,) as a data set, with their weights."""
        return Weighed(self.data.part(rows), self.sample_weight[rows])


def checksum(data: Samples) -> str | None:
    """The SHA-256 of the weights of `data`; None where they have none."""
    return hashlib.sha256(data.sample_weight.tobytes()).hexdigest() if isinstance(data, Weighed) else None


def unweighed(data: T) -> T:
    """`data` without weights."""
    found: T = data.data if isinstance(data, Weighed) else data
    return found
