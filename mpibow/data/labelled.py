"""Images with labels or masks by name, for nets that take both and give their losses, and for losses beside a net."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from .dataset import Array, Dataset, Derived, Moments
from .decoded import Decoded
from .recordset import RecordSet
from .split import Divisible, strata_of


class Labelled:
    """`pictures` as `NamedSamples`: images (n, *shape) as they are stored, labels (n,) int32, called as `names`.

    Encoded ones are `Drawn`: decoded anew each time.
    """

    def __init__(self, pictures: Dataset, names: tuple[str, str] = ("image", "label")):
        self.pictures = pictures
        self.name = pictures.name
        self.count = pictures.count
        self.names = names
        image, label = names
        self.inputs = {image: (pictures.shape, pictures.dtype), label: ((), np.dtype(np.int32))}
        if isinstance(pictures, Decoded):
            self.draw = pictures.draw
            self.threads = 0  # as many as decode

    def read(self, samples: Array, *arrays: Array) -> None:
        self.pictures.read(samples, *arrays)

    def called(self, names: Sequence[str]) -> Self:
        """The same samples with other names."""
        image, label = names
        return type(self)(self.pictures, (image, label))

    def strata(self) -> Array:
        """The strata for `data.split`."""
        return strata_of(self.pictures)

    def part(self, rows: Array) -> Self:
        """Samples `rows` (n,) as a data set."""
        assert isinstance(self.pictures, Divisible)
        return type(self)(self.pictures.part(rows), self.names)


IGNORED = 255  # the value of pixels without a class


class Pictures(Derived):
    """The images alone, as a `Dataset` of one class."""

    def __init__(self, records: RecordSet):
        super().__init__(records)
        self.records = records
        self.shape = (records.shape[0] - 1, *records.shape[1:])

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

    def part(self, rows: Array) -> "Pictures":
        """Samples `rows` (n,) as a data set."""
        return Pictures(self.records.part(rows))


class Masked(Labelled):
    """Images (channels, height, width) uint8 and masks (height, width) int32, called as `names`: `NamedSamples`."""

    pictures: Pictures

    def __init__(self, pictures: Pictures, names: tuple[str, str] = ("image", "mask")):
        super().__init__(pictures, names)
        self.inputs = {**self.inputs, names[1]: (pictures.shape[1:], np.dtype(np.int32))}

    def read(self, samples: Array, *arrays: Array) -> None:
        images, masks = arrays
        whole = self.pictures.whole(samples)
        images[...] = whole[:, :-1]
        masks[...] = whole[:, -1]
