"""Images with masks as records: a raw image whose last channel has the class of each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibow.data.dataset import Array, Inputs
from mpibow.data.recordset import RecordSet

KIND = "masks"
IGNORED = 255  # the value of pixels without a class
NAMES = ("image", "mask")


class Pictures:
    """The images alone, as a `Dataset` of one class."""

    def __init__(self, records: RecordSet) -> None:
        self._records = records
        self.name, self.count, self.classes = records.name, records.count, records.classes
        self.shape = (records.shape[0] - 1, *records.shape[1:])
        self.dtype: np.dtype[Any] = records.dtype

    @property
    def mean(self) -> tuple[float, ...]:
        return self._records.mean[:-1]

    @property
    def std(self) -> tuple[float, ...]:
        return self._records.std[:-1]

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        whole = np.empty((len(samples), *self._records.shape), self.dtype)
        self._records.read(samples, whole, labels)
        images[...] = whole[:, :-1]


class Masked:
    """Images (channels, height, width) uint8 and masks (height, width) int32, called as `names`: `NamedSamples`."""

    def __init__(self, records: RecordSet, names: tuple[str, str] = NAMES) -> None:
        self._records, self._names, self.pictures = records, names, Pictures(records)
        self.name, self.count = records.name, records.count
        image, mask = names
        self.inputs: Inputs = {
            image: (self.pictures.shape, records.dtype),
            mask: (records.shape[1:], np.dtype(np.int32)),
        }

    def read(self, samples: Array, *arrays: Array) -> None:
        images, masks = arrays
        whole = np.empty((len(samples), *self._records.shape), self._records.dtype)
        self._records.read(samples, whole, np.empty(len(samples), np.int32))
        images[...], masks[...] = whole[:, :-1], whole[:, -1]

    def called(self, names: Sequence[str]) -> Masked:
        """The same with other names."""
        image, mask = names
        return Masked(self._records, (image, mask))

    def strata(self) -> Array:
        """The strata for `data.split`: there are no classes of images."""
        return np.zeros(self.count, np.int32)

    def part(self, rows: Array) -> Masked:
        """Samples `rows` (n,) as a data set."""
        return Masked(self._records.part(rows), self._names)
