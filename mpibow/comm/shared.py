"""Memory that all ranks of a node share: they add up each other's rows in place, and meet there, or by messages."""

from __future__ import annotations

import mmap
import os
import platform
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from mpibow.comm.communicator import Array, Communicator

FOLDER = "/dev/shm"
BLOCK = 16384  # elements that are summed while they are in a core's cache


class SharedRows:
    """A row for every rank, each of which writes its own. Arrays over a row keep the memory alive, nothing else does.

    The reader of a row must have met its writer since it was written (Mpi does): meeting orders the memory as well.
    """

    def __init__(self, mapping: mmap.mmap, rank: int, ranks: int, size: int, dtype: str) -> None:
        self.rows: Array = np.frombuffer(mapping, dtype).reshape(ranks, -1)  # (ranks, size and padding)
        self._rank, self._size = rank, size
        self.called = f"sum of {size} {self.rows.dtype} in shared memory"  # found once: it costs more than the meeting
        self.taken: Callable[[], Array | None] = lambda: None

    @property
    def __array_interface__(self) -> dict[str, object]:
        """NumPy's: this rank's row."""
        return dict(self.rows[self._rank, : self._size].__array_interface__)

    def take(self) -> Array:
        """This rank's row (size,)."""
        array = np.asarray(self)
        self.taken = weakref.ref(array)
        return array

    def add_up(self) -> None:
        """This rank's share of the sums, in rank order, into all rows; the others' shares are theirs to make."""
        ranks, size = len(self.rows), self._size
        stop = (self._rank + 1) * size // ranks
        for a in range(self._rank * size // ranks, stop, BLOCK):
            part = slice(a, min(a + BLOCK, stop))
            total = self.rows[0, part]
            for row in self.rows[1:]:
                total += row[part]
            self.rows[1:, part] = total


def open_shared(comm: Communicator, size: int, dtype: str) -> SharedRows | None:
    """Zeros for every rank. Collective; None on all ranks if one has no such memory, or not enough of it."""
    page = mmap.PAGESIZE
    row = max(-(-size * np.dtype(dtype).itemsize // page) * page, page)
    handle, name, mapping = -1, "", None
    with suppress(OSError):
        if comm.rank == 0:
            handle, name = tempfile.mkstemp(prefix="mpibow-", dir=FOLDER)
            os.ftruncate(handle, row * comm.size)
    name = comm.share(name)[0]
    with suppress(OSError, ValueError):  # ValueError: of a file that rank 0 could not make as long
        if name and comm.rank:
            handle = os.open(name, os.O_RDWR)
        if name:  # each takes its own pages: near its cores, and refused here where there are none, not by a signal
            os.posix_fallocate(handle, row * comm.rank, row)
            mapping = mmap.mmap(handle, row * comm.size)
    if handle >= 0:
        os.close(handle)
    everywhere = all(comm.share(mapping is not None))
    if name and comm.rank == 0:  # all have it open: no file is left, however they end
        os.unlink(name)
    return SharedRows(mapping, comm.rank, comm.size, size, dtype) if everywhere and mapping is not None else None


ORDERED = ("x86_64", "AMD64")  # processors on which a rank's stores become visible to others in order


class ByMessages:
    """A small all-reduce that does not block: the largest token, and the smallest.

    One meeting after the other; `token` (32 bits) identifies the call that this rank comes for. `begin` begins the
    all-reduce of the largest numbers, (2,) int64, and returns a function that says whether it is over.
    """

    def __init__(self, begin: Callable[[Array, Array], Callable[[], bool]]) -> None:
        self._begin = begin
        self._mine, self._highest = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def come(self, token: int) -> None:
        self._mine[:] = token, -token
        self._is_over = self._begin(self._mine, self._highest)

    def all_here(self) -> bool:
        return self._is_over()

    def alike(self) -> bool:
        """Whether all came for the same call, once all are here."""
        return bool(self._highest[0] == -self._highest[1])


class ByBoard:
    """A word for every rank in shared rows of two int64 a rank: the meeting's number above, the token below.

    Both are one store, so neither is visible without the other. On ORDERED processors a rank's earlier stores are
    visible before its word. Words alternate: a rank at the next meeting has not overwritten this one's.
    """

    def __init__(self, shared: SharedRows, rank: int) -> None:
        self._words: memoryview[int] = shared.rows.reshape(-1).data  # read in 50 ns
        self._starts = range(0, shared.rows.size, shared.rows.shape[1])
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
