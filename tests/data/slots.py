"""Slots of images, and pipelines, for tests."""

import numpy as np

from mpibow.data import COUNTER, Feed, Samples, Slot, Timeline
from mpibow.data.pipeline import Pipeline
from mpibow.data.readers import Reader


def image_slot(batch: int, shape: tuple[int, ...], dtype: type = np.uint8) -> Slot:
    """A slot of zeros, which nothing takes back; samples 0, 1, ..."""
    arrays = {
        "image": np.zeros((batch, *shape), dtype),
        "label": np.zeros(batch, np.int32),
        COUNTER: np.zeros((batch, 4), np.uint32),
    }
    return Slot(arrays, lambda: None, np.arange(batch))


def piped(
    data: Samples, reader: Reader, timeline: Timeline, prefetch: int, feed: Feed | None = None, seed: int = 5
) -> Pipeline:
    """The pipeline of a single rank, from the beginning on."""
    return Pipeline(data, reader, lambda: timeline, rank=0, iteration=0, seed=seed, prefetch=prefetch, feed=feed)
