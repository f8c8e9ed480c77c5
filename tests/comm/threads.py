"""Several ranks in one process, one thread each: for tests."""

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest

from mpibow.comm import Communicator
from mpibow.comm.communicator import Array, InPlace, describe, differ, flat
from mpibow.comm.pulse import Pulse
from mpibow.errors import CommunicationError, MpibowError

T = TypeVar("T")
LIMIT = 240.0  # seconds that a rank waits for the others: one of them may compile kernels on a busy machine


class _Table:
    """The ranks' shared table: a place for each one's item, and the barrier around it."""

    def __init__(self, size: int, seconds: float) -> None:
        self.items = [None] * size
        self.calls = [""] * size
        self.seconds = seconds
        self.barrier = threading.Barrier(size, timeout=seconds)
        self.failed = None  # the first rank to fail, in words


class Threads(InPlace):
    """One rank of several in this process. Sums are made in rank order, so they are the same bits on every run."""

    any_thread = True

    def __init__(self, rank: int, table: _Table) -> None:
        self.rank = self.local_rank = rank
        self.size = self.local_size = len(table.items)
        self.pulse = Pulse()
        self._table = table

    def allreduce(self, array: Array, stream=None) -> None:
        mine = flat(array)
        everyone = self._exchange(describe("all-reduce", array), mine)
        total = everyone[0].copy()
        for other in everyone[1:]:
            total += other
        self._wait("all-reduce")  # nobody reads the arrays any more
        mine[:] = total

    def sum(self, array: Array) -> Array:
        rows = np.stack(self._exchange(describe("sum", array), flat(array)))
        self._wait("sum")  # nobody reads the arrays any more
        return rows

    def broadcast(self, array: Array, root: int = 0) -> None:
        mine = flat(array)
        source = self._exchange(describe(f"broadcast from rank {root}", array), mine)[root]
        if self.rank != root:
            mine[:] = source
        self._wait("broadcast")  # the root may write its array again

    def barrier(self) -> None:
        self._exchange("barrier", None)

    def share(self, obj) -> list:
        return [pickle.loads(item) for item in self._exchange("share", pickle.dumps(obj))]  # copies, as MPI gives

    def close(self, code: int = 0) -> None:
        if code and self._table.failed is None:
            self._table.failed = f"rank {self.rank} has failed with code {code}"
        if code:
            self._table.barrier.abort()

    def _exchange(self, call: str, item) -> list:
        table = self._table
        table.items[self.rank], table.calls[self.rank] = item, call
        self._wait(call)
        items, calls = list(table.items), list(table.calls)
        self._wait(call)  # everyone has read: the next call may write
        if len(set(calls)) > 1:
            raise CommunicationError(differ(calls))
        return items

    def _wait(self, call: str) -> None:
        try:
            self._table.barrier.wait()
        except threading.BrokenBarrierError:
            why = self._table.failed or f"not every rank came within {self._table.seconds:g} seconds"
            raise CommunicationError(f"rank {self.rank}: {call}: {why}") from None


def threads(size: int, seconds: float = LIMIT) -> list[Communicator]:
    """`size` ranks, to be used by one thread each; a call that waits longer than `seconds` raises."""
    table = _Table(size, seconds)
    return [Threads(rank, table) for rank in range(size)]


def on_threads(size: int, body: Callable[[Communicator], T]) -> list[T]:
    """The return values of body(communicator) on `size` threads, by rank; raises the error of the first to fail."""
    failures = []

    def run(communicator: Communicator) -> T:
        try:
            return body(communicator)
        except BaseException as error:
            failures.append(error)
            communicator.close(1)
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, communicator) for communicator in threads(size)]
    if failures:
        raise failures[0]
    return [future.result() for future in futures]


def refused_on(size: int, body: Callable) -> list[str]:
    """What every rank is told of body(communicator), which none gets through."""

    def run(communicator: Communicator) -> str:
        with pytest.raises(MpibowError) as caught:
            body(communicator)
        return str(caught.value)

    return on_threads(size, run)
