"""Encoded records as samples of one shape, and the reader that decodes them on threads."""

from __future__ import annotations

import numpy as np

from mpibow.data.damage import Damages, Intact, decoding
from mpibow.data.dataset import Array
from mpibow.data.drawn import Draw
from mpibow.data.imagesize import sides_of
from mpibow.data.photo import take
from mpibow.data.recordset import RecordSet
from mpibow.data.settings import Image
from mpibow.data.window import centre_windows, random_windows


class Decoded:
    """The images of `records`, decoded and resized: a `Dataset` of samples (3, size, size) uint8.

    `read` returns the centre of every image, to evaluate. Training takes a window of a random share of the
    image's area in `area` and of a random width / height in `aspect`; the centre as well where `area` is None.
    """

    dtype: np.dtype[np.uint8] = np.dtype(np.uint8)

    def __init__(
        self, records: RecordSet, image: Image, area: tuple[float, float] | None = None,
        aspect: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:  # fmt: skip
        self.records, self.image, self.area, self.aspect = records, image, area, aspect
        self.name, self.count, self.classes = records.name, records.count, records.classes
        self.mean, self.std = records.mean, records.std
        self.shape = (3, image.size, image.size)

    def read(self, samples: Array, images: Array, labels: Array, counters: Array | None = None) -> None:
        """Decodes samples (n,) int64 into images (n, 3, size, size) uint8 and labels (n,) int32.

        With a slot's counters (n, 4) samples are to train on, otherwise to evaluate. Raises DamagedRecord naming the
        first that cannot be read or decoded; the arrays' contents are undefined then.
        """
        numbers = samples.tolist()
        stored, sizes, orientations = zip(*map(self._stored, numbers), strict=True)
        sides = np.array(sizes)
        windows = self.centre(sides) if counters is None else self.windows(sides, counters)
        for row, number in enumerate(numbers):
            with decoding(self.records, number):
                take(stored[row], orientations[row], sides[row], windows[row], images[row])
            labels[row] = self.records.label(number)

    def draw(self, samples: Array, counters: Array, images: Array, labels: Array) -> None:
        """To train on."""
        self.read(samples, images, labels, counters)

    def strata(self) -> Array:
        """The strata for `data.split`."""
        return self.records.labels()

    def part(self, rows: Array) -> Decoded:
        """Samples `rows` (n,) as a data set; mean and std stay those of all, measured at conversion."""
        return Decoded(self.records.part(rows), self.image, self.area, self.aspect)

    def number(self, sample: int) -> int:
        """The sample's number in the whole data set."""
        return self.records.number(sample)

    def _stored(self, sample: int) -> tuple[Array, tuple[int, int], int]:
        """A sample's bytes (n,), and its image's sides and orientation."""
        with decoding(self.records, sample):
            data = self.records.encoded(sample)
            return data, *sides_of(data)

    def centre(self, sizes: Array) -> Array:
        """The windows (n, 4) to evaluate in images of `sizes` (n, 2), height and width."""
        return centre_windows(sizes, self.image.shorter, self.image.size)

    def windows(self, sizes: Array, counter: Array) -> Array:
        """The windows (n, 4) to train on, by the random numbers of counter (n, 4)."""
        return self.centre(sizes) if self.area is None else random_windows(sizes, counter, self.area, self.aspect)


class Decode(Draw):
    """Decodes samples into slots on `threads` threads, which hold no lock while they do."""

    def __init__(self, data: Decoded, damages: Damages, threads: int) -> None:
        intact = Intact(data, damages)

        def fill(samples: Array, counters: Array, images: Array, labels: Array) -> None:
            intact.read(samples, images, labels, counters)

        super().__init__(fill, ("image", "label"), threads)
