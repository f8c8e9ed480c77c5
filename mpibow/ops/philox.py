"""Philox4x32-10, the counter-based generator (Salmon et al., SC 2011): the same bits in every kernel set."""

import zlib

import numpy as np

from mpibow.graph import Array, Call, Run, Specs

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def stream(name: str) -> int:
    """The 32 bits by which a node's random numbers differ from another's."""
    return zlib.crc32(name.encode())


def philox(words: Array, key0: Array, key1: int, scratch: Array) -> None:
    """Encrypts counters `words` (4, n) in place; uint64 arrays that hold 32-bit words, key0 (n,), scratch (2, n)."""
    c0, c1, c2, c3 = words
    high, key = scratch
    np.copyto(key, key0)
    for turn in range(10):
        # (c0, c1, c2, c3) <- (high(c2 m1) ^ c1 ^ k0, low(c2 m1), high(c0 m0) ^ c3 ^ k1, low(c0 m0))
        c2 *= _MULTIPLIERS[1]
        np.right_shift(c2, _SHIFT, out=high)
        np.bitwise_and(c2, _LOW, out=c2)
        np.bitwise_xor(c1, high, out=c1)
        np.bitwise_xor(c1, key, out=c1)
        c0 *= _MULTIPLIERS[0]
        np.right_shift(c0, _SHIFT, out=high)
        np.bitwise_and(c0, _LOW, out=c0)
        np.bitwise_xor(c3, high, out=c3)
        np.bitwise_xor(c3, np.uint64((key1 + turn * _WEYL[1]) & 0xFFFFFFFF), out=c3)
        c0, c1, c2, c3 = c1, c2, c3, c0  # names move, arrays stay
        key += np.uint64(_WEYL[0])
        np.bitwise_and(key, _LOW, out=key)
    # Ten turns moved every name by two places: swap the halves back.
    for a, b in zip(words[:2], words[2:], strict=True):
        np.copyto(high, a)
        np.copyto(a, b)
        np.copyto(b, high)


# The numbers of a batch's samples, by a kernel: `shape` is (n,), a block a sample, or (n, blocks).


def draw_specs(*shape: int) -> Specs:
    """The scratch of `draw`."""
    return {"words": ((4, *shape), "uint64"), "key": (shape, "uint64"), "work": ((2, *shape), "uint64")}


def draw(call: Call, counter: Array) -> Run:
    """Fills scratch["words"] (4, *shape) with the first Philox blocks of every sample of counter (n, 4)."""
    words, key, work = call.buffers("words", "key", "work")
    blocks = np.arange(key[0].size, dtype=np.uint64).reshape(key.shape[1:])
    seed, epoch, low, high = (column.reshape(-1, *[1] * (key.ndim - 1)) for column in counter.T)
    flat = (words.reshape(4, -1), key.reshape(-1), work.reshape(2, -1))
    node = stream(call.name)

    def run() -> None:
        for target, source in zip((*words, key), (blocks, low, high, epoch, seed), strict=True):
            np.copyto(target, source)
        philox(flat[0], flat[1], node, flat[2])

    return run
