"""A whole data set in a GPU's memory: of a batch only its counters go over, a kernel gathers the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mpibow.data.dataset import COUNTER, Dataset
from mpibow.data.feeds import Fill
from mpibow.device.driver import Event
from mpibow.device.feed import DeviceSlot, Feeder
from mpibow.device.memory import ALIGNMENT
from mpibow.kernels.cuda.gather import gather
from mpibow.kernels.cuda.kernels import Launch

STAGE = 8 << 20  # bytes that are read, then copied while the next are read
REMEDY = "set data.pipeline=host"

Bind = Callable[[Sequence[Launch]], Fill]  # what enqueues launches on a stream


class DeviceSet:
    """The images and labels of `data`, read on `threads` threads, every checksum checked, in the feeder's memory.

    Raises DeviceError where they do not fit there.
    """

    def __init__(self, data: Dataset, threads: int, feeder: Feeder, bind: Bind) -> None:
        self._bind, self._size = bind, math.prod(data.shape) * data.dtype.itemsize
        images = feeder.block(f"the images of {data.name}", data.count * self._size, REMEDY)
        labels = feeder.block(f"the labels of {data.name}", data.count * 4, REMEDY)
        self._images, self._labels = images.reshape(data.count, self._size), labels.view(np.int32)
        rows = max(1, min(STAGE // self._size, data.count))
        stages = [_Stage(data, rows, feeder) for _ in range(2)]
        with ThreadPoolExecutor(threads, "load") as pool:
            for i, first in enumerate(range(0, data.count, rows)):
                part = slice(first, min(first + rows, data.count))
                of_images, of_labels = (slice(part.start * size, part.stop * size) for size in (self._size, 4))
                stages[i % 2].load(part, pool, threads, images[of_images], labels[of_labels])
        feeder.stream.synchronise()
        self._prepare(feeder)

    def _prepare(self, feeder: Feeder) -> None:
        """Gathers one row, so that the kernel is loaded now, and not while learners are captured on other threads."""
        row = feeder.block("a row that tries the gather", 2 * ALIGNMENT + self._size, REMEDY)
        counters, label = row[:16].view(np.uint32).reshape(1, 4), row[ALIGNMENT : ALIGNMENT + 4].view(np.int32)
        image = row[2 * ALIGNMENT :].reshape(1, self._size)
        self._bind([gather(self._images, self._labels, counters, image, label)])(feeder.stream)
        feeder.stream.synchronise()

    def filling(self, slot: DeviceSlot) -> Fill:
        """What fills the slot's images and labels by its counters, which are sent."""
        n = len(slot.arrays["label"])
        image = slot.arrays["image"].reshape(n, -1).view(np.uint8)
        return self._bind([gather(self._images, self._labels, slot.arrays[COUNTER], image, slot.arrays["label"])])


class _Stage:
    """Page-locked memory for samples on their way to the device."""

    def __init__(self, data: Dataset, rows: int, feeder: Feeder) -> None:
        self._data, self._feeder = data, feeder
        size = math.prod(data.shape) * data.dtype.itemsize
        locked = feeder.memory.pinned(f"reading {data.name}", rows * (4 + size))
        self._labels = locked[: 4 * rows].view(np.int32)
        self._images = locked[4 * rows :].view(data.dtype).reshape(rows, *data.shape)
        self._copied: Event | None = None

    def load(self, part: slice, pool: ThreadPoolExecutor, threads: int, images: Any, labels: Any) -> None:
        """Reads the samples of `part`, and enqueues their copies to the device's bytes."""
        if self._copied is not None:
            self._copied.synchronise()
        n = part.stop - part.start
        share = -(-n // threads)

        def read(first: int) -> None:
            own = slice(first, min(first + share, n))
            numbers = np.arange(part.start + own.start, part.start + own.stop)
            self._data.read(numbers, self._images[own], self._labels[own])

        for _ in pool.map(read, range(0, n, share)):
            pass
        driver, stream = self._feeder.driver, self._feeder.stream
        driver.copy(images, self._images[:n], stream)
        driver.copy(labels, self._labels[:n], stream)
        self._copied = stream.record()
