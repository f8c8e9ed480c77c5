"""A whole data set in memory: every checksum is checked while it is read, and none afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mpibow.data.dataset import Array, Dataset, Derived

CHUNK = 1024  # samples that a thread reads at once


class Resident(Derived):
    """A `Dataset` of another's samples, read on `threads` threads."""

    def __init__(self, data: Dataset, threads: int) -> None:
        super().__init__(data)
        self._images = np.empty((data.count, *data.shape), data.dtype)
        self._labels = np.empty(data.count, np.int32)

        def load(start: int) -> None:
            part = slice(start, min(start + CHUNK, data.count))
            data.read(np.arange(part.start, part.stop), self._images[part], self._labels[part])

        with ThreadPoolExecutor(threads, "load") as pool:
            for _ in pool.map(load, range(0, data.count, CHUNK)):
                pass

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        np.take(self._images, samples, axis=0, out=images, mode="clip")
        np.take(self._labels, samples, out=labels, mode="clip")
