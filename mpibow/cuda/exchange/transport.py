"""The transport of device arrays between ranks: NCCL, an MPI library that takes them, or page-locked memory."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from mpibow.comm import Communicator
from mpibow.comm.communicator import Array, flat
from mpibow.cuda.device.array import PlanArray
from mpibow.cuda.device.cupy_driver import Driver, Event, Stream
from mpibow.errors import CommunicationError

from .beside import Beside
from .nccl import Nccl, open_nccl
from .probe import takes_device_arrays

Transport = Literal["auto", "nccl", "mpi", "staged"]


def open_transport(
    host: Communicator,
    driver: Driver,
    stream: Stream,
    *,
    transport: Transport = "auto",
    shared: bool = False,
    nccl: Callable[[Communicator, Stream], Nccl] = open_nccl,
    probe: Callable[[], str] = takes_device_arrays,
) -> "tuple[Nccl | Direct, str]":
    """The communicator of device arrays, and a note for the user. Collective; all ranks use the same transport.

    `shared`: this rank's GPU is another's as well, which NCCL does not support. auto is NCCL if possible, else MPI with
    device arrays if the probe has shown that it takes them on every node, else staged. Raises CommunicationError if a
    transport that is requested by name is not available.
    """
    if any(host.share(shared)) and transport in ("auto", "nccl"):
        if transport == "nccl":
            raise CommunicationError(
                "transport=nccl: ranks share a GPU, and NCCL allows one rank per GPU: transport=auto"
            )
        transport = "mpi"
        why = "ranks share a GPU, so they average by MPI"
    elif transport in ("auto", "nccl"):
        try:
            return nccl(host, stream), ""
        except CommunicationError as error:  # on all ranks alike
            if transport == "nccl":
                raise
            transport, why = "mpi", f"ranks average by MPI: {error}"
    else:
        why = ""
    if transport == "mpi":
        refusals = [text for text in host.share(probe()) if text]
        if not refusals:
            return Direct(host, stream), why
        why = f"{why}; through host memory, as {refusals[0]}" if why else f"through host memory: {refusals[0]}"
    return Staged(host, stream, driver.pinned, driver.copy), why


class Direct(Beside):
    """Device arrays handed to an MPI library that takes them: only after the probe has shown that it does."""

    def allreduce(self, array: PlanArray, stream: Stream | None = None) -> None:
        self._through(array, stream, self._host.allreduce)

    def broadcast(self, array: PlanArray, root: int = 0, stream: Stream | None = None) -> None:
        self._through(array, stream, lambda buffer: self._host.broadcast(buffer, root))

    def wait(self, event: Event, what: str = "all-reduce") -> None:
        event.synchronise()

    def _through(self, array: PlanArray, stream: Stream | None, call: Callable[[Array], None]) -> None:
        if not isinstance(array, np.ndarray):
            (stream or self.stream).synchronise()  # MPI does not follow streams
        call(flat(array))


class Staged(Direct):
    """Device arrays by way of page-locked host memory, for any MPI library and for ranks that share a GPU."""

    def __init__(
        self,
        host: Communicator,
        stream: Stream,
        pinned: Callable[[int], Array],
        copy: Callable[[PlanArray, PlanArray, Stream], None],
    ):
        """`pinned` gives page-locked bytes (size,), `copy` enqueues a copy between device and host."""
        super().__init__(host, stream)
        self._pinned, self._copy, self._buffer = pinned, copy, np.zeros(0, np.uint8)

    def _through(self, array: PlanArray, stream: Stream | None, call: Callable[[Array], None]) -> None:
        if isinstance(array, np.ndarray):
            return call(array)
        on = stream or self.stream
        if self._buffer.nbytes < array.nbytes:
            self._buffer = self._pinned(array.nbytes)
        buffer = self._buffer[: array.nbytes].view(array.dtype)
        self._copy(buffer, array, on)
        on.synchronise()  # MPI reads it now
        call(buffer)
        self._copy(array, buffer, on)
        on.synchronise()  # the buffer may be written again
