"""The order of samples: a pure function of (count, seed, epoch), and of the batch where samples have lengths."""

from functools import lru_cache

import numpy as np

from .dataset import Array
from .lengths import Padded

# 8 bytes a sample: two epochs are enough for one stream that runs across a boundary, four for train and test.
_KEPT = 4


@lru_cache(maxsize=_KEPT)
def permutation(count: int, seed: int, epoch: int, lengths: Padded | None = None, batch: int = 1) -> Array:
    """The samples 0 .. count-1 in the order of `epoch` (count,) int64; read only.

    With `lengths`, samples of like lengths are together in the stream's batches of `batch`.
    """
    words = np.random.SeedSequence([seed, epoch, count])
    order: Array = np.random.Generator(np.random.Philox(words)).permutation(count)
    if lengths is not None:
        order = lengths.grouped(order, -epoch * count % batch, batch)
    order.setflags(write=False)
    return order


def samples_at(position: int, length: int, count: int, seed: int, lengths: Padded | None = None) -> tuple[Array, Array]:
    """(epochs, samples), each (length,) int64: the stream of all epochs in a row, from `position` on; read only.

    With `lengths`, `position` is that of a batch of `length` samples, which are of like lengths.
    """
    epoch, first = divmod(position, count)
    if first + length <= count:  # nearly always, and this is done for every slot
        return _epochs(epoch, length), permutation(count, seed, epoch, lengths, length)[first : first + length]
    places = np.arange(position, position + length)
    epochs, within = places // count, places % count
    samples = np.empty(length, np.int64)
    for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
        mine = epochs == epoch
        samples[mine] = permutation(count, seed, epoch, lengths, length)[within[mine]]
    return epochs, samples


@lru_cache(maxsize=_KEPT)
def _epochs(epoch: int, length: int) -> Array:
    epochs = np.full(length, epoch)
    epochs.setflags(write=False)
    return epochs
