"""What every communicator must do: each check is called on every rank. As a module it runs them over MPI."""

import ctypes
import os
import platform
import re
import resource
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from mpibow.comm import Communicator, checksum, shared as shared_memory
from mpibow.comm.across import CALL
from mpibow.comm.communicator import EXACT, Array
from mpibow.comm.shared import ByMessages, rows_of
from mpibow.errors import CommunicationError
from mpibow.kernels.compiled.command import Command

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


def gives_the_same_bits_however_it_is_cut(comm: Communicator) -> None:
    """Those of one order: ranks of a node one after the other, then the nodes; in shared memory or not."""
    size = 10_001
    for dtype in ("float32", "float64"):
        everyone = [np.random.default_rng(rank).standard_normal(size).astype(dtype) for rank in range(comm.size)]
        nodes: dict[str, Array] = {}
        for host, array in zip(comm.share(socket.gethostname()), everyone, strict=True):
            nodes[host] = nodes[host] + array if host in nodes else array
        expected, *others = nodes.values()
        for array in others:
            expected = expected + array
        for array in (comm.zeros(size, dtype), np.zeros(size, dtype)):
            for cuts in ((0, size), (0, 1, 3000, 3001, 9000, size)):
                array[:] = everyone[comm.rank]
                for start, stop in pairwise(cuts):
                    comm.allreduce(array[start:stop])
                np.testing.assert_array_equal(array, expected)


def sums_rows_in_rank_order(comm: Communicator) -> None:
    """Two arrays by turns, as `sum` wants it; each rank's are random."""
    for dtype in ("float32", "float64"):
        for length in (*LENGTHS, 5000):
            arrays = [comm.zeros(length, dtype) for _ in range(2)]
            assert [(a.shape, a.dtype, a.any()) for a in arrays] == [((length,), dtype, False)] * 2
            for turn in range(4):
                arrays[turn % 2][:] = random_of(comm.rank, turn, length)
                rows = comm.sum(arrays[turn % 2])
                np.testing.assert_array_equal(added(rows)[:length], exact(comm, turn, length, dtype))
                assert len(set(comm.share(checksum(added(rows)[:length])))) == 1


def sums_in_place_what_zeros_gave(comm: Communicator) -> None:
    array, other = (comm.zeros(40_000, "float32") for _ in range(2))  # more than SharedRows add up at a time
    for turn in range(3):
        array[:], other[:] = random_of(comm.rank, turn, 40_000), 7.0
        comm.allreduce(array)
        np.testing.assert_array_equal(array, exact(comm, turn, 40_000, "float32"))
        assert (other == 7.0).all()
        other[:] = comm.rank
        comm.broadcast(other, comm.size - 1)
        assert (other == comm.size - 1).all()


def sums_a_part_of_what_zeros_gave(comm: Communicator) -> None:
    array = comm.zeros(30, "float32")
    array[:] = 1
    comm.allreduce(array[10:20])
    assert array.tolist() == [1] * 10 + [comm.size] * 10 + [1] * 10
    part = array[:10]
    del array  # the part keeps it
    comm.allreduce(part)
    assert (part == comm.size).all()


def sums_parts_as_they_are_written(comm: Communicator) -> None:
    length, cuts = 600_000, (0, 5, 5, 300, 290_000, 600_000)
    parts = [[slice(a, b), slice(length + a, length + b)] for a, b in pairwise(cuts)]
    for whole in (comm.zeros(2 * length, "float32"), np.zeros(2 * length, np.float32)):
        add_up = comm.in_parts(whole, parts)
        for turn in range(3):
            mine = np.tile(random_of(comm.rank, turn, length), 2)
            written, summed = [0], list[int]()

            def write(mine: Array = mine, whole: Array = whole, written: list[int] = written) -> None:
                for i, part in enumerate(parts):
                    time.sleep(0.001 * ((comm.rank + i) % 3))
                    for span in part:
                        whole[span] = mine[span]
                    written[0] = i + 1

            writer = threading.Thread(target=write)
            writer.start()
            steps = np.zeros(2, np.int64)
            ready = called(lambda steps=steps, written=written: steps.put(0, written[0]))
            done = called(lambda steps=steps, summed=summed: summed.append(int(steps[1])))
            add_up(ready, done, steps)
            writer.join()
            expected = mine[:length].copy()
            comm.allreduce(expected)
            assert summed == list(range(len(parts)))
            assert np.array_equal(whole[:length], expected)
            assert np.array_equal(whole[length:], expected)


def rounds_what_nodes_send_if_asked(comm: Communicator) -> None:
    length = 300_000
    mine = random_of(comm.rank, 1, length)
    mine[7] = np.nan if comm.rank == comm.size - 1 else 1.0
    exact = np.sum([np.abs(random_of(rank, 1, length)) for rank in range(comm.size)], axis=0)
    comm.narrow, sums = True, list[Array]()
    for cuts in ((0, length), (0, 3, 70_000, 70_001, length - 3, length)):
        whole = comm.zeros(length, "float32")
        whole[:] = mine
        parts = [[slice(a, b)] for a, b in pairwise(cuts)]
        comm.in_parts(whole, parts)(called(lambda: None), called(lambda: None), np.array([len(parts), 0]))
        sums.append(whole.copy())
        whole[:] = mine
        for (part,) in parts:
            comm.allreduce(whole[part])
        sums.append(whole.copy())
    few = comm.zeros(EXACT - 2, "float32")
    few[:] = 1 + 2.0**-20
    comm.allreduce(few)
    comm.narrow = False
    assert np.array_equal(few, np.full(EXACT - 2, comm.size * (1 + 2.0**-20), np.float32))
    comm.allreduce(mine)
    assert np.isnan(sums[0][7])
    for each in sums:
        assert each.tobytes() == sums[0].tobytes()
    assert len(set(comm.share(checksum(sums[0])))) == 1
    assert np.array_equal(sums[0][-EXACT:], mine[-EXACT:])
    off = np.nanmax(np.abs(sums[0] - mine) / (exact + 1e-30))
    assert off < 2.0**-7
    apart = comm.local_size < comm.size or (comm.size > 1 and not getattr(comm, "shared_memory", True))
    assert (off > 0) == apart


def called(function: Callable[[], object]) -> Command:
    """A command that calls it."""
    back = CALL(lambda *_: bool(function()))
    return Command([(ctypes.cast(back, ctypes.c_void_p).value, 0, 0, 0, 0)], back)


def random_of(rank: int, turn: int, length: int) -> Array:
    """Small multiples of 2^-8: every order of adding them up gives the same bits."""
    return np.random.default_rng([rank, turn]).integers(-1000, 1000, length) / 256


def exact(comm: Communicator, turn: int, length: int, dtype: str) -> Array:
    return sum(random_of(rank, turn, length) for rank in range(comm.size)).astype(dtype)


def added(rows: Array) -> Array:
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    return total


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
    places = comm.share((socket.gethostname(), comm.local_rank))
    assert sorted(place for host, place in places if host == socket.gethostname()) == list(range(comm.local_size))


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
    others = {2: "rank 0", 3: "ranks 0, 2"}.get(comm.size, f"ranks 0, 2 to {comm.size - 1}")
    said = f"{others} all-reduce of 3 float32; rank 1 all-reduce of 4 float32"
    assert str(caught.value) == f"the ranks make different calls: {said}"
    if comm.local_size < comm.size:  # messages between nodes may be under way
        with pytest.raises(CommunicationError, match="barrier: ranks have made different calls"):
            comm.barrier()


def names_parts_that_differ(comm: Communicator) -> None:
    """Messages of other lengths arrive before the ranks have met."""
    array = comm.zeros(20_000, "float32")[: 10_000 + 5000 * (comm.rank == 1)]
    parts = [[slice(0, array.size)]]
    time.sleep(0.05 * comm.rank)
    with pytest.raises(CommunicationError) as caught:
        comm.in_parts(array, parts)(called(lambda: None), called(lambda: None), np.array([1, 0]))
    assert re.search("rank 1 .* of 15000 float32", str(caught.value))


def leaves_short_sums_that_differ(comm: Communicator) -> None:
    """Their numbers travel with the calls that are refused."""
    array = comm.zeros(1000, "float32")
    array[:] = comm.rank
    with pytest.raises(CommunicationError) as caught:
        comm.allreduce(array[: 500 + 100 * (comm.rank == 1)])
    assert re.search("rank 1 sum of 600 float32 from 0", str(caught.value))
    assert (array == comm.rank).all()


CHECKS = (
    sums_every_dtype_and_length,
    sums_into_the_callers_memory,
    gives_the_same_bits_however_it_is_cut,
    sums_rows_in_rank_order,
    sums_in_place_what_zeros_gave,
    sums_a_part_of_what_zeros_gave,
    sums_parts_as_they_are_written,
    rounds_what_nodes_send_if_asked,
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

    assert note == "" or note.startswith("removed ")  # what jobs that other tests have killed left
    cut = Mpi(largest=7)
    for check in CHECKS:
        check(communicator)
        check(cut)
    calls = []
    whole = cut._comm
    cut._comm = _Counted(whole, calls)
    cut.broadcast(np.ones(14))
    assert calls.count("Bcast") == 2
    cut._comm = whole
    with pytest.raises(CommunicationError, match=r"broadcast from rank 99 of 1 float64: MPI error: "):
        cut.broadcast(np.ones(1), root=99)
    with pytest.raises(CommunicationError, match="cut short"):  # out of step for ever
        cut.barrier()
    shared(communicator, 2000 if communicator.size == 2 else 300)
    unordered(communicator)
    sizes = communicator.share(communicator.size)
    if communicator.rank == 0:
        print("all checks passed on", sizes)


def shared(comm, turns: int) -> None:
    """What is more where all ranks see each other's memory."""
    assert comm.shared_memory
    order = np.float32([1e8, 1.0, -1e8, 1.0])[: comm.size]
    in_order = order[0]
    for number in order[1:]:
        in_order += number
    arrays = [comm.zeros(20_000, "float32") for _ in range(2)]
    for array in arrays:
        array[:] = order[comm.rank]
    rows = comm.sum(arrays[0])
    assert len(rows) == (2 if comm.size == 2 else 1)
    assert (added(rows) == in_order)[:20_000].all()
    comm.allreduce(arrays[1])
    assert (arrays[1] == in_order).all()
    with pytest.raises(CommunicationError) as caught:
        comm.sum(arrays[0][2 : 9 + comm.rank] if comm.rank else arrays[0])
    said = [f"sum of {7 + rank} float32 from 2 in shared memory" for rank in range(1, comm.size)]
    said = [f"rank {rank} {call}" for rank, call in enumerate(["sum of 20000 float32 in shared memory", *said])]
    assert str(caught.value) == "the ranks make different calls: " + "; ".join(said)
    stress(comm, arrays, turns)
    held = weakref.ref(rows_of(arrays[0]))
    del arrays, array, rows, caught
    assert held() is None  # nothing is held for ever


def stress(comm, arrays: list[Array], turns: int) -> None:
    """Exchanges of ranks that come when they like, between other calls; each sees what all others wrote for it."""
    delays = np.random.default_rng(comm.rank)
    whole = comm.size * (comm.size - 1) / 2
    kept = comm.zeros(1000, "float64")
    for turn in range(turns):
        array = arrays[turn % 2]
        array[:] = turn * 8 + comm.rank
        if delays.random() < 0.05:
            time.sleep(delays.random() * 1e-3)
        rows = comm.sum(array)
        if delays.random() < 0.05:
            time.sleep(delays.random() * 1e-3)  # the others may write their next ones meanwhile
        expected = turn * 8 * comm.size + whole
        total = rows.sum(axis=0)[: array.size]
        assert total.min() == total.max() == expected
        if turn % 7 == 0:
            kept[:] = turn + comm.rank
            comm.allreduce(kept)
            assert kept.min() == kept.max() == turn * comm.size + whole
        if turn % 50 == 0:
            assert comm.share(turn) == [turn] * comm.size
            comm.broadcast(array, turn % comm.size)


def unordered(communicator: Communicator) -> None:
    """Where processors do not keep stores in order, and where a rank has no room for what all would see."""
    from mpibow.comm import Mpi

    made = []
    make = tempfile.mkstemp

    def noted(**where) -> tuple[int, str]:
        handle, name = make(**where)
        made.append(name)
        return handle, name

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", noted)
        patch.setattr(platform, "machine", lambda: "aarch64")
        strict = Mpi()
        assert isinstance(strict._meeting, ByMessages)
        assert strict.shared_memory
        shared(strict, 100)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if communicator.rank == communicator.size - 1:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        apart = Mpi()
        array = strict.zeros(10, "float32")
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert not apart.shared_memory
        assert rows_of(array) is None
        patch.setattr(shared_memory, "FOLDER", "/nowhere")
        nowhere = Mpi()
        assert not nowhere.shared_memory
    for comm in (strict, apart, nowhere):
        for check in CHECKS:
            check(comm)
    assert (len(made) > 5) == (communicator.rank == 0)
    assert not any(map(os.path.exists, made))


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
