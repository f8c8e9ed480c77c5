"""Images and labels by name, for nets that take both and give their own losses, and for losses beside a net."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from mpibow.data.dataset import Array, Dataset, Inputs
from mpibow.data.decoded import Decoded
from mpibow.data.split import Divisible, strata_of

NAMES = ("image", "label")


class Labelled:
    """`pictures` as `NamedSamples`: images (n, *shape) as they are stored, labels (n,) int32, called as `names`.

    Encoded ones are `Drawn`: decoded anew each time.
    """

    def __init__(self, pictures: Dataset, names: tuple[str, str] = NAMES) -> None:
        self.pictures, self.name, self.count, self.names = pictures, pictures.name, pictures.count, names
        image, label = names
        self.inputs: Inputs = {image: (pictures.shape, pictures.dtype), label: ((), np.dtype(np.int32))}
        if isinstance(pictures, Decoded):
            self.draw = pictures.draw
            self.threads = 0  # as many as decode

    def read(self, samples: Array, *arrays: Array) -> None:
        images, labels = arrays
        self.pictures.read(samples, images, labels)

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
