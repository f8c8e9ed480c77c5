"""Images and labels by name, for nets that take both and give their own losses."""

from __future__ import annotations

import numpy as np

from mpibow.data.dataset import Array, Dataset, Inputs
from mpibow.data.split import Divisible


class Labelled:
    """`data` as `NamedSamples`: image (n, *shape) as it is stored, label (n,) int32."""

    def __init__(self, data: Dataset) -> None:
        self._data, self.name, self.count = data, data.name, data.count
        self.inputs: Inputs = {"image": (data.shape, data.dtype), "label": ((), np.dtype(np.int32))}

    def read(self, samples: Array, *arrays: Array) -> None:
        images, labels = arrays
        self._data.read(samples, images, labels)

    def strata(self) -> Array:
        """As in `data.split`."""
        assert isinstance(self._data, Divisible)
        return self._data.strata()

    def part(self, rows: Array) -> Labelled:
        """Samples `rows` (n,) as a data set."""
        assert isinstance(self._data, Divisible)
        return Labelled(self._data.part(rows))
