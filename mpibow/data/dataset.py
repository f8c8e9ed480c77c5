"""What every source of samples offers, and the one that lives in memory."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mpibow.errors import RecordError

Array = npt.NDArray[Any]


class Dataset(Protocol):
    """Samples by number. Images of one data set share one shape (channels, height, width) and one dtype.

    `mean` and `std` are per channel, in the unit of the stored values; a model's input is (image - mean) / std.
    `classes` is the number of classes; labels lie in [0, classes).
    """

    @property
    def name(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def classes(self) -> int: ...
    @property
    def mean(self) -> tuple[float, ...]: ...
    @property
    def std(self) -> tuple[float, ...]: ...

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        """Copies samples (n,) int64 into images (n, *shape) of `dtype` and labels (n,) int32.

        Raises RecordError naming file and record number where a sample is damaged.
        """
        ...


class ArrayData:
    """A data set of NumPy arrays in memory: images (n, c, h, w) or (n, features), labels (n,) integers."""

    def __init__(self, images: Array, labels: Array, *, classes: int | None = None, name: str = "arrays") -> None:
        images, labels = np.asarray(images), np.asarray(labels)
        if images.ndim < 2 or len(images) == 0 or len(images) != len(labels) or labels.ndim != 1:
            raise RecordError(
                f"{name}: images {images.shape} and labels {labels.shape} must be (n, ...) and (n,) with n >= 1"
            )
        if not np.issubdtype(labels.dtype, np.integer):
            raise RecordError(f"{name}: labels must be integers, got {labels.dtype}")
        if images.dtype != np.uint8:
            images = images.astype(np.float32, copy=False)
        self.images = np.ascontiguousarray(images)
        self.labels = labels.astype(np.int32)
        self.name = name
        self.count = len(images)
        self.shape: tuple[int, ...] = images.shape[1:]
        self.dtype: np.dtype[Any] = self.images.dtype
        self.classes = int(labels.max()) + 1 if classes is None else classes
        if labels.min() < 0 or labels.max() >= self.classes:
            raise RecordError(f"{name}: labels must lie in [0, {self.classes}), got {labels.min()} to {labels.max()}")
        axes = (0, *range(2, images.ndim))
        self.mean: tuple[float, ...] = tuple(map(float, images.mean(axis=axes, dtype=np.float64)))
        spread = images.std(axis=axes, dtype=np.float64)
        self.std: tuple[float, ...] = tuple(map(float, np.where(spread > 0, spread, 1.0)))

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        np.take(self.images, samples, axis=0, out=images, mode="clip")
        np.take(self.labels, samples, out=labels, mode="clip")
