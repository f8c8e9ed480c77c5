"""What tests do with a data set of records: read it, and damage it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpibow.data import Array


def read(data, samples: Sequence[int] | None = None) -> tuple[Array, Array]:
    """Images and labels of all samples, or of those given."""
    numbers = np.arange(data.count) if samples is None else np.array(samples, np.int64)
    images, labels = np.empty((len(numbers), *data.shape), data.dtype), np.empty(len(numbers), np.int32)
    data.read(numbers, images, labels)
    return images, labels


def flip(path: Path, at: int) -> None:
    """Changes a bit of a file's byte, in place: whoever has it mapped sees it."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
