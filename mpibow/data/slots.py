"""Slots: small batches in memory, ready for a learner, in a ring that is reused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mpibow.data.dataset import Array


@dataclass
class Slot:
    """One batch: image (b, ...), label (b,), counter (b, 4) for random numbers; `release` gives it back to its ring."""

    arrays: dict[str, Array]
    release: Callable[[], None]
    samples: Array | None = None  # (b,) which samples these are


def slot_arrays(batch: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> dict[str, Array]:
    """The arrays of one slot, by the names of the graph's inputs."""
    return {
        "image": np.zeros((batch, *shape), dtype),
        "label": np.zeros(batch, np.int32),
        "counter": np.zeros((batch, 4), np.uint32),
    }


def fill_counter(counter: Array, seed: int, epochs: Array | int, samples: Array) -> None:
    """What a sample's random numbers depend on: (seed, epoch, sample low, sample high)."""
    counter[:, 0] = seed
    counter[:, 1] = epochs
    counter[:, 2] = samples & 0xFFFFFFFF
    counter[:, 3] = samples >> 32
