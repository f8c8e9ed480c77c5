"""Means and standard deviations of images: per channel as they pass by, per value of a data set."""

import math
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from mpibow.errors import DamagedRecord

from .dataset import Array, Dataset, Moments, lots

PART = 4 << 20  # bytes that are read at once
LOT = 1 << 16  # bytes of images whose moments are taken at once: their float64 fit a core's cache


class RunningMoments:
    """Running mean and sum of squared deviations, float64 (Chan, Golub and LeVeque 1979: pairs are merged exactly).

    Images are taken in lots of LOT bytes: one at a time, small ones would cost more than writing them.
    """

    def __init__(self, channels: int):
        self._count = 0  # values per channel
        self._mean: Array = np.zeros(channels)
        self._squares: Array = np.zeros(channels)
        self._lot = list[Array]()
        self._size = 0

    def add(self, image: Array) -> None:
        """An image (channels, ...), of the same shape each."""
        self._lot.append(image.copy())  # whose memory may be used again
        self._size += image.nbytes
        if self._size >= LOT:
            self._take()

    def found(self) -> Moments:
        """Mean and standard deviation of each channel, 1 where all values are equal, so that it can be divided by."""
        if self._lot:
            self._take()
        spread = np.sqrt(self._squares / self._count)
        return tuple(self._mean.tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist())

    def _take(self) -> None:
        values = np.stack(self._lot, axis=1).astype(np.float64).reshape(len(self._mean), -1)
        self._lot = []
        self._size = 0
        mean = values.mean(axis=1)
        values -= mean[:, None]
        total = self._count + values.shape[1]
        delta = mean - self._mean
        self._mean += delta * (values.shape[1] / total)
        self._squares += np.einsum("cp,cp->c", values, values) + delta**2 * (self._count * values.shape[1] / total)
        self._count = total


def channel_moments(data: Dataset) -> Moments:
    """Mean and standard deviation of each channel over all images of `data` that are not damaged, each read once."""
    images = np.empty((1, *data.shape), data.dtype)
    labels = np.empty(1, np.int32)
    moments = RunningMoments(data.shape[0])
    for sample in range(data.count):
        with suppress(DamagedRecord):  # when it is read to train on, data.on_corrupt decides
            data.read(np.array([sample]), images, labels)
            moments.add(images[0])
    return moments.found()


def mean_image(data: Dataset, note: Callable[[str], None] = lambda text: None, patience: float = 5.0) -> Array:
    """The mean of every value over all images of `data`, float64 of their shape; each image is read once, in order.

    Sums are whole numbers for uint8, float64 for float32, always in the same order: the same bits on every rank. A note
    is printed after `patience` seconds, and again each time that twice as long has passed.
    """
    rows = max(1, PART // (math.prod(data.shape) * data.dtype.itemsize))
    total: Array = np.zeros(data.shape, np.uint64 if data.dtype == np.uint8 else np.float64)
    begin = time.monotonic()
    done = 0
    for samples, arrays in lots(data, rows):
        total += arrays["image"].sum(axis=0, dtype=total.dtype)
        done += len(samples)
        if time.monotonic() - begin > patience and done < data.count:
            note(f"data.normalise: {done:,} of {data.count:,} images of {data.name} are in the mean image")
            patience *= 2
    return total / data.count
