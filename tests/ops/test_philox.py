"""Philox against the known answers of Random123 (kat_vectors, philox 4x32 10) and against plain integers."""

import numpy as np
import pytest

from mpibow.ops.philox import philox, stream

MASK = 0xFFFFFFFF
Words = tuple[int, int, int, int]


def plain(counter: Words, key: tuple[int, int]) -> Words:
    """Philox4x32-10 in Python's integers, as the paper writes it."""
    (a, b, c, d), (k0, k1) = counter, key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ k0, second & MASK, (first >> 32) ^ d ^ k1, first & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return a, b, c, d


def encrypt(counters: list[Words], key0: list[int], key1: int) -> list[Words]:
    words = np.array(counters, np.uint64).T.copy()
    scratch = np.full((2, len(counters)), MASK, np.uint64)
    philox(words, np.array(key0, np.uint64), key1, scratch)
    return [tuple(column) for column in words.T.tolist()]


KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK,) * 4, (MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter: Words, key, answer: Words):
    assert encrypt([counter], [key[0]], key[1]) == [answer]
    assert plain(counter, key) == answer


def test_many_counters_at_once():
    generator = np.random.default_rng(0)
    counters = [tuple(row) for row in generator.integers(0, 1 << 32, (50, 4)).tolist()]
    keys = generator.integers(0, 1 << 32, 50).tolist()
    expected = [plain(counter, (key, 12345)) for counter, key in zip(counters, keys, strict=True)]
    assert encrypt(counters, keys, 12345) == expected


def test_the_key_is_not_written():
    key = np.array([3, 4], np.uint64)
    philox(np.zeros((4, 2), np.uint64), key, 0, np.zeros((2, 2), np.uint64))
    assert key.tolist() == [3, 4]


def test_streams_of_nodes():
    assert stream("dropout1") == 0x61F61C4C
    assert len({stream(f"dropout{i}") for i in range(1000)}) == 1000
