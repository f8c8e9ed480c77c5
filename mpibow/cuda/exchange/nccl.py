"""Ranks with a GPU each: device arrays by NCCL on one stream, small host objects by MPI. Not run between GPUs yet."""

import time
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn

import numpy as np

from mpibow.comm import Communicator
from mpibow.comm.communicator import describe, differ
from mpibow.cuda.device.array import PlanArray
from mpibow.cuda.device.cupy_driver import Event, Stream
from mpibow.cuda.device.driver import dotted
from mpibow.errors import CommunicationError, DeviceError, install

from .beside import Beside

LATE = 600.0  # seconds after which a call that has not ended is given up: a peer is gone
SHORTEST_SLEEP, LONGEST_SLEEP = 20e-6, 1e-3  # seconds


class Nccl(Beside):
    """A communicator for device arrays, of float32; host arrays and all objects go by `host`.

    One NCCL communicator and one stream, so that all ranks issue the same calls in the same order. With a stream given,
    a call is enqueued there and returns at once: `wait` for its end. Without, it is over on return.
    """

    def __init__(self, host: Communicator, ring: "CupyRing", stream: Stream, seconds: float = LATE):
        super().__init__(host, stream)
        self._ring, self._seconds = ring, seconds
        self._agreed = set[str]()
        self._failed = ""

    def allreduce(self, array: PlanArray, stream: Stream | None = None) -> None:
        if isinstance(array, np.ndarray):
            return self._host.allreduce(array)
        self._issue("all-reduce", self._ring.allreduce, stream, array)

    def broadcast(self, array: PlanArray, root: int = 0, stream: Stream | None = None) -> None:
        if isinstance(array, np.ndarray):
            return self._host.broadcast(array, root)
        self._issue(f"broadcast from rank {root}", self._ring.broadcast, stream, array, root)

    def wait(self, event: Event, what: str = "all-reduce") -> None:
        """Sleeps until `event` has come. Raises CommunicationError if NCCL or the GPU reports an error, or nothing for
        too long; then all calls under way are aborted, so that no rank is left in a kernel that never ends."""
        waited = 0.0  # does not grow while the whole job is suspended
        self.pulse.waiting = what
        try:
            while not event.done:
                if problem := self._ring.problem():
                    self._give_up(f"{what}: NCCL error: {problem}")
                if waited > self._seconds:
                    self._give_up(f"{what}: not every rank came within {self._seconds:g} seconds")
                pause = min(max(waited / 16, SHORTEST_SLEEP), LONGEST_SLEEP)
                time.sleep(pause)
                waited += pause
        except DeviceError as error:
            self._give_up(f"{what}: {error}")
        self.pulse.waiting = ""

    def part(self, *, failed: bool = False) -> None:
        """Gives NCCL up, at once where something `failed`; the host's communicator stays."""
        if failed:
            self._ring.abort()
        elif not self._failed:
            self._ring.close()

    def _issue(self, name: str, call: Callable[..., None], stream: Stream | None, array: PlanArray, *root: int) -> None:
        what, on = describe(name, array), stream or self.stream
        if self._failed:
            raise CommunicationError(f"{what}: an earlier call has failed: {self._failed}")
        self._agree(what)
        try:
            call(_address(array), array.size, *root, on.pointer)
        except CommunicationError as error:
            self._give_up(f"{what}: {error}")
        if stream is None:
            self.wait(on.record(), what)

    def _agree(self, what: str) -> None:
        """Compares the ranks' calls, each call only the first time that it is made: NCCL hangs, or adds up the wrong
        memory, if they differ."""
        if what not in self._agreed:
            calls = self._host.share(what)
            if any(call != what for call in calls):
                raise CommunicationError(differ(calls))
            self._agreed.add(what)

    def _give_up(self, why: str) -> NoReturn:
        self._failed = why
        self._ring.abort()
        raise CommunicationError(why)


def _address(array: PlanArray) -> int:
    assert array.dtype == np.float32, array.dtype
    assert array.flags.c_contiguous, f"communication needs a contiguous array, got strides {array.strides}"
    return int(array.data.ptr)


class CupyRing:
    """NCCL's calls on one communicator, through CuPy. They enqueue on the CUDA stream at the address `stream`."""

    def __init__(self, nccl: ModuleType, size: int, identity: object, rank: int):
        self._nccl, self._type = nccl, nccl.NCCL_FLOAT32
        try:
            self._comm = nccl.NcclCommunicator(size, identity, rank)
        except nccl.NcclError as error:
            raise CommunicationError(
                f"NCCL cannot connect the {size} ranks: {error}; NCCL_DEBUG=INFO shows why; "
                "transport=mpi works without NCCL"
            ) from None

    def allreduce(self, address: int, count: int, stream: int) -> None:
        self._call(self._comm.allReduce, address, address, count, self._type, self._nccl.NCCL_SUM, stream)

    def broadcast(self, address: int, count: int, root: int, stream: int) -> None:
        self._call(self._comm.broadcast, address, address, count, self._type, root, stream)

    def problem(self) -> str:
        """The error meanwhile on any rank; '' if there is none. Does not wait."""
        try:
            self._comm.check_async_error()
        except self._nccl.NcclError as error:
            return str(error)
        return ""

    def abort(self) -> None:
        """Aborts all calls under way."""
        self._comm.abort()

    def close(self) -> None:
        self._comm.destroy()

    def _call(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except self._nccl.NcclError as error:
            raise CommunicationError(f"NCCL error: {error}") from None


def load_nccl() -> ModuleType:
    """CuPy's module nccl. Raises CommunicationError naming the package to install."""
    try:
        from cupy.cuda import nccl
    except (ImportError, OSError) as error:
        raise CommunicationError(f"NCCL: CuPy cannot be loaded ({error}): {install('cuda')}") from None
    if not nccl.available:
        raise CommunicationError(f"NCCL is not installed: {install('cuda')}, or load the site's module")
    loaded: ModuleType = nccl
    return loaded


def open_nccl(host: Communicator, stream: Stream, nccl: ModuleType | None = None) -> Nccl:
    """Collective. Rank 0's identity of the communicator goes to all by `host`.

    Every rank must use a GPU of its own. Raises CommunicationError on all ranks if one has no NCCL, or another version
    of it.
    """
    problem = ""
    version = 0
    identity = None
    try:
        nccl = nccl or load_nccl()
        version = nccl.get_version()
        identity = nccl.get_unique_id() if host.rank == 0 else None
    except CommunicationError as error:
        problem = str(error)
    everyone = host.share((problem, version, identity))
    for rank, (text, *_) in enumerate(everyone):
        if text:
            raise CommunicationError(f"rank {rank}: {text}")
    versions = sorted({number for _, number, _ in everyone})
    if len(versions) > 1:
        raise CommunicationError(
            f"the ranks have NCCL {', '.join(map(dotted, versions))}: install one version on all nodes"
        )
    assert nccl is not None
    return Nccl(host, CupyRing(nccl, host.size, everyone[0][2], host.rank), stream)
