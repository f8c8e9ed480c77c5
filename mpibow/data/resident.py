"""A whole data set in memory: every checksum is checked while it is read, and none afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mpibow.data.dataset import Array, Dataset

CHUNK = 1024  # samples that a thread reads at once


class Resident:
    """A `Dataset` of another's samples, read on `threads` threads."""

    def __init__(self, data: Dataset, threads: int) -> None:
        self.name, self.count, self.classes = data.name, data.count, data.classes
        self.shape, self.dtype, self._data = data.shape, data.dtype, data
        self._images = np.empty((data.count, *data.shape), data.dtype)
        self._labels = np.empty(data.count, np.int32)

        def load(start: int) -> None:
            part = slice(start, min(start + CHUNK, data.count))
            data.read(np.arange(part.start, part.stop), self._images[part], self._labels[part])

        with ThreadPoolExecutor(threads, "load") as pool:
            for _ in pool.map(load, range(0, data.count, CHUNK)):
                pass

    @property
    def mean(self) -> tuple[float, ...]:
        return self._data.mean

    @property
    def std(self) -> tuple[float, ...]:
        return self._data.std

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        np.take(self._images, samples, axis=0, out=images, mode="clip")
        np.take(self._labels, samples, out=labels, mode="clip")
