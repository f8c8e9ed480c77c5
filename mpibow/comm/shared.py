"""Memory that all ranks of a node share: they add up each other's rows in place, and meet there, or by messages."""

import mmap
import os
import platform
import tempfile
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np

from .communicator import EXACT, Array, Communicator

FOLDER = "/dev/shm"
BLOCK = 16384  # elements that are summed while they are in a core's cache


class SharedRows:
    """A row for every rank of a node, each of which writes its own. Arrays over a row keep the memory alive.

    The reader of a row must have met its writer since it was written (Mpi does): meeting orders the memory as well.
    """

    def __init__(self, mapping: mmap.mmap, rank: int, ranks: int, size: int, dtype: str):
        """`rank` is this one's number on its node."""
        self.rows: Array = np.frombuffer(mapping, dtype).reshape(ranks, -1)  # (ranks, size and padding)
        self._own = self.rows[rank, :size]
        self._start: int = self._own.ctypes.data
        self._rough = size - EXACT if dtype == "float32" else 0
        self.sums = dict[Any, Any]()  # how its parts are added up
        self._called = f"sum of {size} {self.rows.dtype} in shared memory"  # found once: it costs more than the meeting

    @property
    def __array_interface__(self) -> dict[str, object]:
        """NumPy's: this rank's row."""
        return dict(self._own.__array_interface__)

    def find(self, array: Array) -> tuple[str, Array, int]:
        """For this rank's row or a part of it: their sum in words that are equal on all ranks, all ranks' rows, and how
        many elements of them may be sent as bfloat16: none below 0."""
        if array.size == self._own.size:
            return self._called, self.rows, self._rough
        begin = (array.ctypes.data - self._start) // array.itemsize
        part = slice(begin, begin + array.size)
        called = f"sum of {array.size} {array.dtype} from {begin} in shared memory"
        return called, self.rows[:, part], self._rough - begin


def rows_of(array: Array) -> SharedRows | None:
    """The rows that `array` is of, whole or in part; None for any other array."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, SharedRows) and owner.rows.dtype == array.dtype else None


def add_up(rows: Array) -> None:
    """The sum of `rows` (ranks, n) into all of them."""
    for start in range(0, rows.shape[1], BLOCK):
        block = rows[:, start : start + BLOCK]
        for row in block[1:]:
            block[0] += row
        block[1:] = block[0]


def open_shared(comm: Communicator, leader: int, size: int, dtype: str) -> SharedRows | None:
    """Zeros for every rank of a node, whose first is `leader`. Collective.

    None on all ranks of all nodes if one has no such memory, or not enough of it.
    """
    page = mmap.PAGESIZE
    ranks = comm.local_size
    place = comm.local_rank
    row = max(-(-size * np.dtype(dtype).itemsize // page) * page, page)
    handle = -1
    name = ""
    mapping = None
    with suppress(OSError):
        if place == 0:
            handle, name = tempfile.mkstemp(prefix="mpibow-", dir=FOLDER)
            os.ftruncate(handle, row * ranks)
    name = comm.share(name)[leader]
    with suppress(OSError, ValueError):  # ValueError: of a file that the leader could not make as long
        if name and place:
            handle = os.open(name, os.O_RDWR)
        if name:  # each takes its own pages: near its cores, and refused here where there are none, not by a signal
            os.posix_fallocate(handle, row * place, row)
            mapping = mmap.mmap(handle, row * ranks)
    if handle >= 0:
        os.close(handle)
    everywhere = all(comm.share(mapping is not None))
    if name and place == 0:  # all have it open: no file is left, however they end
        os.unlink(name)
    return SharedRows(mapping, place, ranks, size, dtype) if everywhere and mapping is not None else None


ORDERED = ("x86_64", "AMD64")  # processors on which a rank's stores become visible to others in order


class ByMessages:
    """A small all-reduce that does not block: the largest token, and the smallest.

    One meeting after the other; `token` (32 bits) identifies the call that this rank comes for.
    """

    test = None  # as ByNodes has one

    def __init__(self, mpi: ModuleType, comm: Any):
        self._mpi = mpi
        self._comm = comm
        self._mine = np.zeros(2, np.int64)
        self._highest = np.zeros(2, np.int64)

    def come(self, token: int) -> None:
        self._mine[:] = token, -token
        self._request = self._comm.Iallreduce(self._mine, self._highest, self._mpi.MAX)

    def all_here(self) -> bool:
        return bool(self._request.Test())

    def alike(self) -> bool:
        """Whether all came for the same call, once all are here."""
        return bool(self._highest[0] == -self._highest[1])


class ByBoard:
    """Words for every rank in shared rows of int64: two for meetings, a meeting's number above, the token below; and
    two for sums in parts (mpibow.kernels.compiled.sums).

    Number and token are one store, so neither is visible without the other. On ORDERED processors a rank's earlier
    stores are visible before its word. Words alternate: a rank at the next meeting has not overwritten this one's.
    """

    test = None

    def __init__(self, shared: SharedRows, rank: int):
        self.rows = shared.rows
        self._words: memoryview[int] = shared.rows.reshape(-1).data  # read in 50 ns
        self._starts = range(0, shared.rows.size, shared.rows.shape[1])
        self._rank = rank
        self._number = 0
        self.before = 0  # parts of all sums in parts so far, which the two numbers go on from

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
