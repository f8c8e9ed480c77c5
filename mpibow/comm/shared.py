"""Memory that all ranks of a node share: they add up each other's rows in place, without a message."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

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
    def __array_interface__(self) -> dict[str, Any]:
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
