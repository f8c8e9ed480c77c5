"""What every communicator must do: each check is called on every rank. As a module it runs them over MPI."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from mpibow.comm import Communicator, checksum
from mpibow.errors import CommunicationError

LENGTHS = (0, 1, 6, 7, 8, 14, 20)  # around multiples of 7, where `main` cuts the arrays


def sums_every_dtype_and_length(comm: Communicator) -> None:
    for dtype in (np.float32, np.float64, np.int32, np.int64, np.uint8):
        for length in LENGTHS if dtype is np.float32 else LENGTHS[-1:]:
            array = (np.arange(length) + comm.rank).astype(dtype)
            whole = np.arange(length) * comm.size + sum(range(comm.size))
            comm.allreduce(array)
            np.testing.assert_array_equal(array, whole.astype(dtype))
            assert array.dtype == dtype


def sums_into_the_callers_memory(comm: Communicator) -> None:
    store = np.ones((5, 4, 3), np.float32)
    comm.allreduce(store[1:3])
    assert (store[1:3] == comm.size).all()
    assert (store[[0, 3, 4]] == 1).all()
    scalar = np.array(2.0)
    comm.allreduce(scalar)
    assert scalar == 2 * comm.size


def gives_the_same_bits_everywhere_and_always(comm: Communicator) -> None:
    mine = np.random.default_rng(comm.rank).standard_normal(10_001).astype(np.float32)
    sums = [mine.copy(), mine.copy()]
    for array in sums:
        comm.allreduce(array)
    checksums = {value for values in comm.share([checksum(array) for array in sums]) for value in values}
    assert len(checksums) == 1
    everyone = [np.random.default_rng(rank).standard_normal(10_001).astype(np.float32) for rank in range(comm.size)]
    np.testing.assert_allclose(sums[0], np.sum(everyone, axis=0, dtype=np.float64), rtol=1e-5, atol=1e-5)


def broadcasts_from_every_root(comm: Communicator) -> None:
    for root in range(comm.size):
        for length in LENGTHS:
            array = np.full((length, 2), 10.0 + comm.rank)
            comm.broadcast(array, root)
            assert (array == 10.0 + root).all()


def shares_objects_by_rank(comm: Communicator) -> None:
    mine = {"rank": comm.rank, "text": "x" * 1000 * comm.rank, "none": None}
    everyone = comm.share(mine)
    assert [theirs["rank"] for theirs in everyone] == list(range(comm.size))
    assert [len(theirs["text"]) for theirs in everyone] == [1000 * rank for rank in range(comm.size)]


def keeps_what_others_share_apart(comm: Communicator) -> None:
    everyone = comm.share([comm.rank])
    comm.barrier()
    everyone[0].append("mine")
    comm.barrier()
    assert everyone[0] == [0, "mine"]


def lets_nobody_through_a_barrier_early(comm: Communicator) -> None:
    time.sleep(0.02 * comm.rank)
    came = time.monotonic()
    comm.barrier()
    went = time.monotonic()
    times = comm.share((came, went))
    assert max(came for came, _ in times) <= min(went for _, went in times)


def reads_arrays_before_the_caller_changes_them(comm: Communicator) -> None:
    for turn in range(10):
        array = np.full(1000, float(turn + comm.rank))
        comm.allreduce(array)
        assert (array == turn * comm.size + sum(range(comm.size))).all()
        array[:] = -1e9  # a slow rank must not see this
        array[:] = turn + comm.rank
        root = turn % comm.size
        comm.broadcast(array, root)
        assert (array == turn + root).all()
        array[:] = -1e9


def works_on_a_second_thread(comm: Communicator) -> None:
    assert comm.any_thread
    array = np.ones(100)
    thread = threading.Thread(target=comm.allreduce, args=(array,))
    thread.start()
    thread.join()
    assert (array == comm.size).all()


def knows_its_place(comm: Communicator) -> None:
    assert 0 <= comm.rank < comm.size
    assert sorted(comm.share(comm.rank)) == list(range(comm.size))
    assert sorted(comm.share(comm.local_rank)) == list(range(comm.size))  # one node
    assert comm.local_size == comm.size


def refuses_an_array_with_gaps(comm: Communicator) -> None:
    if comm.size > 1:
        with pytest.raises(AssertionError, match="contiguous"):
            comm.allreduce(np.ones((4, 4))[:, 1])
        with pytest.raises(AssertionError, match="contiguous"):
            comm.broadcast(np.ones(8)[::2])


def names_calls_that_differ(comm: Communicator) -> None:
    if comm.size == 1:
        return
    with pytest.raises(CommunicationError) as caught:
        comm.allreduce(np.ones(3 + (comm.rank == 1), np.float32))
    said = [f"rank {rank} all-reduce of {3 + (rank == 1)} float32" for rank in range(comm.size)]
    assert str(caught.value) == "the ranks make different calls: " + "; ".join(said)


CHECKS: tuple[Callable[[Communicator], None], ...] = (
    sums_every_dtype_and_length,
    sums_into_the_callers_memory,
    gives_the_same_bits_everywhere_and_always,
    broadcasts_from_every_root,
    shares_objects_by_rank,
    keeps_what_others_share_apart,
    lets_nobody_through_a_barrier_early,
    reads_arrays_before_the_caller_changes_them,
    works_on_a_second_thread,
    knows_its_place,
    refuses_an_array_with_gaps,
    names_calls_that_differ,
)


def main(communicator: Communicator, note: str) -> None:
    from mpibow.comm import Mpi

    assert note == ""
    cut = Mpi(largest=7)
    for check in CHECKS:
        check(communicator)
        check(cut)
    calls: list[str] = []
    whole = cut._comm
    cut._comm = _Counted(whole, calls)
    cut.allreduce(np.ones(20))
    cut.broadcast(np.ones(14))
    assert [calls.count(name) for name in ("Allreduce", "Bcast")] == [3, 2]
    cut._comm = whole
    with pytest.raises(CommunicationError, match=r"broadcast from rank 99 of 1 float64: MPI says "):
        cut.broadcast(np.ones(1), root=99)
    with pytest.raises(CommunicationError, match="cut short"):  # out of step for ever
        cut.barrier()
    sizes = communicator.share(communicator.size)
    if communicator.rank == 0:
        print("all checks passed on", sizes)


class _Counted:
    """A communicator of mpi4py that notes its calls."""

    def __init__(self, comm: object, calls: list[str]) -> None:
        self._comm, self._calls = comm, calls

    def __getattr__(self, name: str) -> object:
        self._calls.append(name)
        return getattr(self._comm, name)


if __name__ == "__main__":
    from mpibow.comm import run_ranks

    run_ranks(main)
