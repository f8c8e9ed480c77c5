"""Images with masks as records: a raw image whose last channel has the class of each pixel."""

from __future__ import annotations

import numpy as np

from mpibow.data.dataset import Array, Derived, Moments
from mpibow.data.labelled import Labelled
from mpibow.data.recordset import RecordSet

KIND = "masks"
IGNORED = 255  # the value of pixels without a class
NAMES = ("image", "mask")


class Pictures(Derived):
    """The images alone, as a `Dataset` of one class."""

    def __init__(self, records: RecordSet) -> None:
        super().__init__(records)
        self.records, self.shape = records, (records.shape[0] - 1, *records.shape[1:])

    def moments(self) -> Moments:
        return self.data.mean[:-1], self.data.std[:-1]

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        images[...] = self.whole(samples)[:, :-1]
        labels[...] = 0

    def whole(self, samples: Array) -> Array:
        """Images and masks (n, channels + 1, height, width)."""
        whole = np.empty((len(samples), *self.records.shape), self.dtype)
        self.records.read(samples, whole, np.empty(len(samples), np.int32))
        return whole

    def part(self, rows: Array) -> Pictures:
        """Samples `rows` (n,) as a data set."""
        return Pictures(self.records.part(rows))


class Masked(Labelled):
    """Images (channels, height, width) uint8 and masks (height, width) int32, called as `names`: `NamedSamples`."""

    pictures: Pictures

    def __init__(self, pictures: Pictures, names: tuple[str, str] = NAMES) -> None:
        super().__init__(pictures, names)
        self.inputs = {**self.inputs, names[1]: (pictures.shape[1:], np.dtype(np.int32))}

    def read(self, samples: Array, *arrays: Array) -> None:
        images, masks = arrays
        whole = self.pictures.whole(samples)
        images[...], masks[...] = whole[:, :-1], whole[:, -1]
