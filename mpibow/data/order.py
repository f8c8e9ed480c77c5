"""The order of samples: a pure function of (count, seed, epoch), and of the batch where samples have lengths."""

import math
from functools import lru_cache

import numpy as np

from .dataset import Array, Samples
from .lengths import WINDOW, Padded, lengths_of

SHUFFLED = 1 << 16  # samples of an epoch that are shuffled as a whole; of more, each rank would need 8 bytes a sample
BLOCK = 1024  # positions that are computed at once: for one, NumPy's calls take half as long
ROUNDS = 6  # of `by_index`; orders of fewer than four show
ODD, ODD_TOO = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # of SplitMix64
HALF = np.uint64(32)


def version_of(data: Samples) -> int:
    """Which order samples have, for checkpoints: 2 where it is computed by index or by lengths, in blocks, else 1."""
    return 2 if data.count > SHUFFLED or lengths_of(data) else 1


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
    epochs, places = np.divmod(np.arange(start, start + batches * batch), count)
    samples = np.empty_like(places)
    for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
        first, end = np.searchsorted(epochs, (epoch, epoch + 1)).tolist()
        samples[first:end] = order(places[first:end], count, seed, epoch)
        if lengths is not None:
            whole = slice(-(-first // batch) * batch, end // batch * batch)
            samples[whole] = lengths.grouped(samples[whole], batch)
    epochs.setflags(write=False)
    samples.setflags(write=False)
    return epochs, samples


def order(places: Array, count: int, seed: int, epoch: int) -> Array:
    """The samples (n,) int64 at `places` (n,) of an epoch, which has each of 0 .. count-1 once."""
    if count <= SHUFFLED:
        return permutation(count, seed, epoch)[places]
    return by_index(places, count, _words(count, seed, epoch).generate_state(ROUNDS, np.uint64))


@lru_cache(maxsize=4)
def permutation(count: int, seed: int, epoch: int) -> Array:
    """The samples 0 .. count-1 in the order of `epoch` (count,) int64, for a `count` that is small."""
    found: Array = np.random.Generator(np.random.Philox(_words(count, seed, epoch))).permutation(count)
    return found


def by_index(places: Array, count: int, keys: Array) -> Array:
    """A permutation of 0 .. count-1 at `places` (n,) int64; `keys` (rounds,) uint64 choose it. For a large `count`.

    A generalised Feistel network with cycle walking: J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains"
    (CT-RSA 2002), method 3. A number is a pair of digits; each round adds a hash of the one to the other. There are a
    few more pairs than numbers: a pair that is no number goes through the rounds again, until it is one.
    """
    side = math.isqrt(count - 1) + 1
    bases = np.uint64(side), np.uint64(-(-count // side))
    numbers, left = places.astype(np.uint64), np.arange(len(places))
    while len(left):
        digits = [numbers[left] % bases[0], numbers[left] // bases[0]]
        for n, key in enumerate(keys):
            to = n % 2
            digits[to] = (digits[to] + _hash(digits[1 - to] + key, bases[to])) % bases[to]
        numbers[left] = digits[0] + digits[1] * bases[0]
        left = left[numbers[left] >= count]
    return numbers.astype(np.int64)


def _hash(words: Array, below: np.uint64) -> Array:
    """The words (n,) uint64, hashed to numbers below `below`."""
    words = words * ODD
    words = (words ^ words >> HALF) * ODD_TOO
    return (words >> HALF) * below >> HALF


def _words(count: int, seed: int, epoch: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, epoch, count])
