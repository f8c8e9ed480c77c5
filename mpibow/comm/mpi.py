"""Ranks as MPI processes: host arrays, blocking calls, and waiting that leaves the core to a learner."""

import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from mmap import mmap
from typing import Any, TypeVar

import numpy as np

from mpibow.errors import CommunicationError, install

from .across import PIECE, Across, ByNodes
from .cgroups import machine_cores
from .communicator import Array, InPlace, Parts, Run, SumInParts, describe, differ, flat
from .library import initialise, load, short
from .pulse import Pulse
from .shared import ByBoard, ByMessages, SharedRows, add_up, open_shared, ordered, rows_of

T = TypeVar("T")
DIRECT = 2  # up to so many ranks, each reads all arrays whole; more are added up by shares, and read once
SCRATCH = 2**22  # bytes of shared memory on a node for arrays that lie elsewhere
PAIRWISE = 16  # nodes up to which each meets each other one
LARGEST = 2**30  # elements in one MPI call: Open MPI fails above 2^31
SPIN = 20e-6  # seconds: less than a sleep costs
SPIN_ALONE = 2e-3  # on the main thread, which computes itself: its core has nothing else to do
SHORTEST_SLEEP, LONGEST_SLEEP = 50e-6, 1e-3  # seconds
PAUSES = 200, 1000  # microseconds that a communication thread sleeps while it waits for data, or for learners
MANY = 50  # of them before it looks for its launcher
NOTHING = np.zeros((0, 5), np.int64)  # commands
FAREWELL = 1.0  # seconds that a rank which fails waits for the others to fail alike
ABORTED = 10.0  # seconds that a rank waits to be aborted by one that has failed


class Mpi(InPlace):
    """All ranks of MPI_COMM_WORLD. Opening is collective.

    A call first meets the others in a small non-blocking all-reduce that is polled between short sleeps, and only then
    blocks in MPI: MPI itself would spin on a core that a learner wants. The main thread sleeps less: it is a learner's,
    and the core its own. The meeting also carries each rank's call, so that ranks which make different calls raise
    CommunicationError instead of hanging. So does a rank whose launcher was killed: MPI itself does not notice that.
    An all-reduce in parts sends its parts while the ranks meet.

    Sums have one order, whatever the array's length and however it is cut: those of a node's ranks, one after the
    other, then the nodes', one after the other. A node's ranks add up in shared memory, each a share of the array,
    which it exchanges with the ranks of the other nodes that hold the same share.
    """

    def __init__(self, largest: int = LARGEST, pulse: Pulse | None = None):
        self._mpi = mpi = load()
        self.pulse = pulse or Pulse()
        self.pulse.waiting = "the start of MPI"
        if not mpi.Is_initialized():
            initialise(mpi)
        world = mpi.COMM_WORLD
        self._comm = world.Dup()
        local = world.Split_type(mpi.COMM_TYPE_SHARED)  # launchers' local ranks are permuted when oversubscribed
        self.local_rank: int = local.rank
        self.local_size: int = local.size
        self.rank: int = world.rank
        self.size: int = world.size
        self.pulse.ranks = self.size, self.local_size
        self._largest = largest
        self._spin = SPIN_ALONE if self.local_size <= machine_cores() else SPIN
        self._free = threading.Lock()  # held during a call, and for ever after a call that was cut short
        self._refused = False  # whether ranks of several nodes have made different calls: only `leave` may follow
        self._launcher = os.getppid()
        self._meeting: ByMessages | ByBoard | ByNodes = ByMessages(mpi, self._comm)
        leaders: list[int] = world.allgather(local.bcast(self.rank))  # by rank, the first rank of its node
        nodes = [[rank for rank, of in enumerate(leaders) if of == leader] for leader in sorted(set(leaders))]
        self._leader = leaders[self.rank]
        most = max(map(len, nodes))
        self.shared_memory = most > 1  # whether `zeros` returns memory that a node's ranks share
        board = self._open_shared(4, "int64")
        self.shared_memory = board is not None
        scratch = self._open_shared(max(SCRATCH // most, 1), "uint8")
        if scratch is None:  # of arrays that lie elsewhere nothing could be added up
            board = None
            self.shared_memory = False
            nodes = [[rank] for rank in range(self.size)]
        self._scratch = scratch or self._own(SCRATCH, "uint8")
        if not all(world.allgather(len(nodes) == 1 or find_spec("numba") is not None)):
            raise CommunicationError(f"ranks that share no memory need numba: {install('cpu')}")
        self._here = ByMessages(mpi, local) if board is None or not ordered() else ByBoard(board, self.local_rank)
        node = next(i for i, ranks in enumerate(nodes) if self.rank in ranks)
        self._share = nodes[node].index(self.rank)
        self._shares = min(map(len, nodes))
        peers = [ranks[self._share] for ranks in nodes] if self._share < self._shares else []
        self._across = Across(mpi, self._comm, peers, node, min(largest, PIECE))
        self._together = len(nodes) == 1
        if len(nodes) == 1:
            self._meeting = self._here
        elif len(nodes) <= PAIRWISE:
            leaders_across = Across(mpi, self._comm, [ranks[0] for ranks in nodes], node)
            here = None if board is None else self._here
            self._meeting = ByNodes(leaders_across if self._share == 0 else None, here, len(nodes))
        self.pulse.waiting = ""

    @property
    def any_thread(self) -> bool:
        return bool(self._mpi.Query_thread() >= self._mpi.THREAD_SERIALIZED)

    @property
    def thread_level(self) -> str:
        names = ("single", "funneled", "serialized", "multiple")
        level = self._mpi.Query_thread()
        return next(name for name in names if getattr(self._mpi, f"THREAD_{name.upper()}") == level)

    @property
    def mpi_library(self) -> str:
        """The MPI library's name and version: "Open MPI v5.0.11", "MPICH Version: 5.0.2"."""
        return short(self._mpi.Get_library_version())

    def zeros(self, size: int, dtype: str) -> Array:
        shared = self._open_shared(size, dtype)
        if shared is None and not self.shared_memory:
            shared = self._own(size, dtype)
        return super().zeros(size, dtype) if shared is None else np.asarray(shared)

    def sum(self, array: Array) -> Array:
        shared = rows_of(array)
        if shared is None or len(shared.rows) < self.size or self.size > DIRECT:
            return super().sum(array)
        called, rows, _ = shared.find(array)
        with self._call(called):
            pass
        return rows

    def allreduce(self, array: Array, stream: object = None) -> None:
        if (shared := rows_of(array)) is not None:
            called, rows, rough = shared.find(array)
            rows = rows[:, : array.size]
            if isinstance(self._meeting, ByNodes) and self._meeting.carries(rows) and not self.narrow:
                with self._call(called, rows):
                    return
            with self._call(called):
                self._add_up(rows, rough, shared.sums)
            return
        whole = flat(array)
        with self._call(describe("all-reduce", array)):
            if not isinstance(array, np.ndarray):  # of a device, for a library that takes it
                for start in range(0, whole.size, self._largest):
                    self._comm.Allreduce(self._mpi.IN_PLACE, whole[start : start + self._largest])
            else:
                rows = self._scratch.rows.view(whole.dtype)
                step = rows.shape[1]
                for start in range(0, whole.size, step):  # by way of the scratch
                    part = whole[start : start + step]
                    row = rows[self.local_rank % len(rows), : part.size]
                    row[:] = part
                    if len(rows) > 1:
                        self._meet_here()
                    # Few sizes: each keeps messages.
                    grain = 1 if self._together else 1 << max(part.size.bit_length() - 3, 0)
                    self._add_up(rows[:, : -(-part.size // grain) * grain], 0, self._scratch.sums)
                    part[:] = row

    def in_parts(self, array: Array, parts: Parts) -> SumInParts:
        shared = rows_of(array)
        board = self._here if isinstance(self._here, ByBoard) else None
        if shared is None or (board is None and len(shared.rows) > 1):
            return super().in_parts(array, parts)
        _, rows, rough = shared.find(array)
        spans = [[(rows[:, each], rough - each.start) for each in part] for part in parts]
        sums = self._sums(spans, None if board is None else board.rows)
        what = describe(f"all-reduce in {len(parts)} parts", array)

        def run(ready: Run, done: Run, steps: Array) -> None:
            with self._call(what, late=True):
                sums.begin(0 if board is None else board.before)
                met = False
                meeting = self._meeting
                over = False
                while not over:
                    if os.getppid() != self._launcher:
                        raise self._orphaned()
                    met = met or self._alike(what)
                    many = MANY if met or meeting.test else 2
                    over = sums.work(ready.table, done.table, steps, met, meeting.test, (*PAUSES, many))
                    self.pulse.waiting = what if steps[0] > steps[1] else ""
                if board is not None:
                    board.before += len(parts)

        return run

    def broadcast(self, array: Array, root: int = 0) -> None:
        whole = flat(array)
        with self._call(describe(f"broadcast from rank {root}", array)):
            for start in range(0, whole.size, self._largest):
                self._comm.Bcast(whole[start : start + self._largest], root)

    def barrier(self) -> None:
        with self._call("barrier"):
            pass

    def share(self, obj: T) -> list[T]:
        with self._call("share"):
            objects: list[T] = self._comm.allgather(obj)
        return objects

    def leave(self, code: int, text: str) -> list[str] | None:
        """The last call: how every rank ends, by rank; None if not all of them end now.

        With code 0 it waits for the others, else for a second only.
        """
        if not (self._refused or self._free.acquire(blocking=False)):
            return None
        self.pulse.waiting = "their end"
        end = _end(code, text)
        self._come(end)
        if not self._until(self._meeting.all_here, None if code == 0 else FAREWELL):
            return None
        said: list[str] = [end] * self.size if self._meeting.alike() else self._comm.allgather(end)
        if not all(map(_ends, said)):
            return None
        self.pulse.stop()
        return said

    def close(self, code: int = 0) -> None:
        """With code 0 nothing but the watchdog ends: MPI is finalised when Python exits."""
        if code:
            self._mpi.COMM_WORLD.Abort(code)
            os._exit(code)  # should the library return from it
        self.pulse.stop()

    def _open_shared(self, size: int, dtype: str) -> SharedRows | None:
        return open_shared(self, self._leader, size, dtype) if self.shared_memory else None

    def _own(self, size: int, dtype: str) -> SharedRows:
        """Memory as `zeros` gives it, of a rank that shares none with others."""
        return SharedRows(mmap(-1, size * np.dtype(dtype).itemsize + 8), 0, 1, size, dtype)  # never empty

    def _add_up(self, rows: Array, rough: int, kept: dict[Any, Any]) -> None:
        """Puts the sums of all ranks' rows into each of this node's, (ranks, n), which their ranks have written; `kept`
        are those of this memory."""
        if self._together:
            for part, _ in self._shares_of(rows, rough):
                add_up(part)
        else:
            key = rows.ctypes.data, rows.shape, rows.dtype, rough * self.narrow
            sums = kept[key] = kept.get(key) or self._sums([[(rows, rough)]])
            sums.begin(0)
            steps = np.array([1, 0])
            self._finish(lambda: sums.work(NOTHING, NOTHING, steps, True, None, (0, 0, 1)), longest=SHORTEST_SLEEP)
        if len(rows) > 1:
            self._meet_here()

    def _sums(self, parts: Sequence[Sequence[tuple[Array, int]]], board: Array | None = None) -> Any:
        """What adds up these parts, a Sums. Each part is several spans: rows (ranks, n), and how many of their elements
        may be rounded."""
        from mpibow.kernels.compiled.sums import Sums

        numbers = count()
        across = self._across
        mine = self.local_rank
        pieces = [
            [
                piece
                for span in part
                for share, narrow in self._shares_of(*span)
                for piece in across.pieces(share, narrow, numbers)
            ]
            for part in parts
        ]
        if board is None:
            board = np.zeros((1, 4), np.int64)
            mine = 0
        return Sums(pieces, self._mpi.Exception, str(self._mpi.__file__), board, mine)

    def _shares_of(self, rows: Array, rough: int) -> Iterator[tuple[Array, bool]]:
        """This rank's shares of the sums of `rows`, and whether they may be rounded, as the first `rough` elements."""
        rough = max(rough, 0) * self.narrow
        share = self._share
        shares = self._shares
        if share < shares:  # ranks beyond those of the smallest node leave it to the others
            for each, narrow in ((rows[:, :rough], True), (rows[:, rough:], False)):
                size = each.shape[1]
                yield each[:, size * share // shares : size * (share + 1) // shares], narrow

    @contextmanager
    def _call(self, what: str, *carried: Array, late: bool = False) -> Iterator[None]:
        """A call, inside of which all ranks are there; `late`: they meet meanwhile, and `_alike` is asked. A meeting of
        nodes adds up what is `carried`."""
        if not self._free.acquire(blocking=False):
            busy = "another call is under way on a second thread, or one was cut short"
            why = "ranks have made different calls" if self._refused else busy
            raise CommunicationError(f"{what}: {why}")
        self.pulse.waiting = "" if late else what
        # No `finally`: after a call that was cut short the ranks are out of step, and nothing more may be sent.
        try:
            self._come(what, *carried)
            if not late:
                self._finish(lambda: self._alike(what))
            yield
            if late:
                self._finish(lambda: self._alike(what))
        except self._mpi.Exception as error:
            if late and not (self._together or self._refused):  # as by messages of other lengths, of different calls
                with suppress(self._mpi.Exception):
                    self._until(lambda: self._alike(what), FAREWELL)
            raise CommunicationError(f"{what}: MPI error: {error}") from error
        self.pulse.waiting = ""
        self.pulse.beats += 1
        self._free.release()

    def _refuse(self, said: list[str]) -> None:
        ends = {rank: call for rank, call in enumerate(said) if _ends(call)}
        if any(call != _end(0, "") for call in ends.values()):
            time.sleep(ABORTED)  # it prints why and ends us: print nothing over it
            raise CommunicationError(f"rank {next(iter(ends))} has failed while the others went on")
        raise CommunicationError(differ(said))

    def _come(self, what: str, *carried: Array) -> None:
        """To the meeting of all ranks."""
        self._meeting.come(zlib.crc32(what.encode(errors="surrogatepass")), *carried)

    def _alike(self, what: str) -> bool:
        """Whether all ranks are here. Raises CommunicationError where they make different calls."""
        here = self._meeting.all_here()
        if here and not self._meeting.alike():
            self._refused = not self._together
            if self._together:  # all of them know, so they are in step; between nodes messages may be under way
                self._free.release()
            self._refuse(self._comm.allgather(what))
        return here

    def _until(self, is_over: Callable[[], bool], seconds: float | None = None, longest: float = LONGEST_SLEEP) -> bool:
        """Sleeps until `is_over`; False after `seconds`, or without a launcher."""
        start = time.monotonic()
        alone = threading.current_thread() is threading.main_thread()
        while not is_over():
            waited = time.monotonic() - start
            if (seconds is not None and waited > seconds) or os.getppid() != self._launcher:
                return False
            if alone and waited < self._spin:
                os.sched_yield()
            elif waited > SPIN:
                time.sleep(min(max(waited / 16, SHORTEST_SLEEP), longest))  # late by a sixteenth, or 0.1 ms
        return True

    def _meet_here(self) -> None:
        """Meets the ranks of this node in the midst of a call."""
        self._here.come(0)
        self._finish(self._here.all_here)

    def _finish(self, is_over: Callable[[], bool], **pauses: float) -> None:
        if not self._until(is_over, **pauses):
            raise self._orphaned()

    def _orphaned(self) -> CommunicationError:
        return CommunicationError(
            f"{self.pulse.waiting or 'an exchange'}: the process that started this rank, {self._launcher}, has ended"
        )


def _end(code: int, text: str) -> str:
    return f"end with code {code}" + (f": {text}" if text else "")


def _ends(call: str) -> bool:
    return call.startswith("end with code ")
