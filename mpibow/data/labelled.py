"""Images and labels by name, for nets that take both and give their own losses, and for losses beside a net."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibow.data.dataset import Array, Dataset, Inputs
from mpibow.data.decoded import Decoded
from mpibow.data.split import Divisible

NAMES = ("image", "label")


class Labelled:
    """`pictures` as `NamedSamples`: images (n, *shape) as they are stored, labels (n,) int32, called as `names`."""

    def __init__(self, pictures: Dataset, names: tuple[str, str] = NAMES) -> None:
        self.pictures, self.name, self.count, self.names = pictures, pictures.name, pictures.count, names
        image, label = names
        self.inputs: Inputs = {image: (pictures.shape, pictures.dtype), label: ((), np.dtype(np.int32))}

    def read(self, samples: Array, *arrays: Array) -> None:
        images, labels = arrays
        self.pictures.read(samples, images, labels)

    def called(self, names: Sequence[str]) -> Labelled:
        """The same samples with other names."""
        image, label = names
        return type(self)(self.pictures, (image, label))

    def strata(self) -> Array:
        """The strata for `data.split`."""
        assert isinstance(self.pictures, Divisible)
        return self.pictures.strata()

    def part(self, rows: Array) -> Labelled:
        """Samples `rows` (n,) as a data set."""
        assert isinstance(self.pictures, Divisible)
        return type(self)(self.pictures.part(rows), self.names)


class LabelledPhotos(Labelled):
    """The same for encoded images: `Drawn`, decoded anew each time."""

    threads = 0  # as many as decode

    def __init__(self, pictures: Any, names: tuple[str, str] = NAMES) -> None:
        super().__init__(pictures, names)
        self._photos: Decoded = pictures

    def draw(self, samples: Array, counters: Array, *arrays: Array) -> None:
        """To train on."""
        images, labels = arrays
        self._photos.read(samples, images, labels, counters)


def labelled(pictures: Dataset, names: tuple[str, str] = NAMES) -> Labelled:
    """`pictures` as `NamedSamples`, drawn where they are to be decoded."""
    return LabelledPhotos(pictures, names) if isinstance(pictures, Decoded) else Labelled(pictures, names)
