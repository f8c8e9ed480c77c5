"""The order of samples: a pure function of (count, seed, epoch), and of the batch where samples have lengths."""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from .dataset import Array
from .lengths import WINDOW, Padded

SHUFFLED = 1 << 16  # samples of an epoch that are shuffled as a whole; of more, each rank would need 8 bytes a sample
BLOCK = 1024  # positions that are computed at once: for one, NumPy's calls take half as long
ROUNDS = 6  # of `by_index`; the tests notice four
# of SplitMix64
ODD = 0xBF58476D1CE4E5B9
ODD_TOO = 0x94D049BB133111EB


def samples_at(position: int, length: int, count: int, seed: int, lengths: Padded | None = None) -> tuple[Array, Array]:
    """(epochs, samples), each (length,) int64: the stream of all epochs in a row, from `position` on; read only.

    With `lengths`, `position` is that of a batch of `length` samples, which are of like lengths.
    """
    batches = max(BLOCK // length, 1) if lengths is None else WINDOW
    within = position // length % batches * length
    epochs, samples = _block(position - within, batches, length, count, seed, lengths)
    return epochs[within : within + length], samples[within : within + length]


@lru_cache(maxsize=16)
def _block(start: int, batches: int, batch: int, count: int, seed: int, lengths: Padded | None) -> tuple[Array, Array]:
    """`samples_at` for batches in a row; with `lengths`, those that lie within an epoch are grouped."""
    epochs, samples = np.divmod(np.arange(start, start + batches * batch), count)
    for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
        first, end = np.searchsorted(epochs, (epoch, epoch + 1)).tolist()
        samples[first:end] = order(count, seed, epoch)(samples[first:end])
        if lengths is not None:
            whole = slice(-(-first // batch) * batch, end // batch * batch)
            samples[whole] = lengths.grouped(samples[whole], batch)
    epochs.flags.writeable = samples.flags.writeable = False
    return epochs, samples


@lru_cache(maxsize=4)
def order(count: int, seed: int, epoch: int) -> Callable[[Array], Array]:
    """The order of an epoch: a function from places (n,) to the samples there, each of 0 .. count-1 once."""
    words = np.random.SeedSequence([seed, epoch, count])
    if count <= SHUFFLED:
        shuffled: Array = np.random.Generator(np.random.Philox(words)).permutation(count)
        return shuffled.__getitem__
    return partial(by_index, words.generate_state(ROUNDS, np.uint64), count)


def by_index(keys: Array, count: int, places: Array) -> Array:
    """A permutation of 0 .. count-1 at `places` (n,) int64; `keys` (rounds,) uint64 choose it. For a large `count`.

    A Feistel network with cycle walking (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002): a
    number is a pair of digits, and each round adds a hash of the one to the other. There are a few more pairs than
    numbers: a pair that is no number goes through the rounds again, until it is one.
    """
    side = math.isqrt(count - 1) + 1
    numbers = places.astype(np.uint64)
    left = np.arange(len(places))
    while len(left):
        high, low = np.divmod(numbers[left], side)
        for key in keys:
            words = (low + key) * ODD
            words = (words ^ words >> 32) * ODD_TOO
            high, low = low, (high + (words >> 32)) % side
        numbers[left] = high * side + low
        left = left[numbers[left] >= count]
    return numbers.astype(np.int64)
