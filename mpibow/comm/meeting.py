"""Meetings check that all ranks have come, and for the same call: by messages, or by words in shared memory."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from mpibow.comm.shared import SharedRows

ORDERED = ("x86_64", "AMD64")  # processors on which a rank's stores become visible to others in order


class ByMessages:
    """A small all-reduce that does not block: the largest token, and the smallest.

    One meeting after the other; `token` (32 bits) identifies the call that this rank comes for.
    """

    def __init__(self, comm: Any, maximum: Any) -> None:
        self._comm, self._maximum = comm, maximum
        self._mine, self._highest = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def come(self, token: int) -> None:
        self._mine[:] = token, -token
        self._request = self._comm.Iallreduce(self._mine, self._highest, self._maximum)

    def all_here(self) -> bool:
        return bool(self._request.Test())

    def alike(self) -> bool:
        """Whether all came for the same call, once all are here."""
        return bool(self._highest[0] == -self._highest[1])


class ByBoard:
    """A word for every rank in shared rows of two int64 a rank: the meeting's number above, the token below.

    Both are one store, so neither is visible without the other. On ORDERED processors a rank's earlier stores are
    visible before its word. Words alternate: a rank at the next meeting has not overwritten this one's.
    """

    def __init__(self, shared: SharedRows, rank: int) -> None:
        words: Any = shared.rows
        self._words = memoryview(words.reshape(-1))  # read in 50 ns
        self._starts = range(0, words.size, words.shape[1])
        self._rank, self._number = rank, 0

    def come(self, token: int) -> None:
        self._number = (self._number + 1) % 2**31
        side = self._number % 2
        self._places = [start + side for start in self._starts]
        self._words[self._places[self._rank]] = self._number << 32 | token

    def all_here(self) -> bool:
        return all(self._words[place] >> 32 == self._number for place in self._places)

    def alike(self) -> bool:
        return len({self._words[place] for place in self._places}) == 1


def ordered() -> bool:
    """Whether ranks of this machine may meet ByBoard."""
    return platform.machine() in ORDERED
