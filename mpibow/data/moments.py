"""Mean and standard deviation per channel, of images that pass by one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Moments:
    """Running mean and sum of squared deviations, float64 (Chan, Golub and LeVeque 1979: pairs are merged exactly)."""

    def __init__(self, channels: int) -> None:
        self.count = 0  # values per channel
        self.mean: Array = np.zeros(channels)
        self.squares: Array = np.zeros(channels)

    def add(self, image: Array) -> None:
        """An image (channels, ...)."""
        values = image.reshape(len(image), -1).astype(np.float64)
        mean = values.mean(axis=1)
        values -= mean[:, None]
        total = self.count + values.shape[1]
        delta = mean - self.mean
        self.mean = self.mean + delta * (values.shape[1] / total)
        self.squares += np.einsum("cp,cp->c", values, values) + delta**2 * (self.count * values.shape[1] / total)
        self.count = total

    @property
    def std(self) -> Array:
        """1 where all values are equal, so that it can be divided by."""
        spread = np.sqrt(self.squares / self.count)
        return np.where(spread > 0, spread, 1.0)
