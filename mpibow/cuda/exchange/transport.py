"""The transport of device arrays between ranks: NCCL, an MPI library that takes them, or page-locked memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from mpibow.comm.communicator import Communicator
from mpibow.cuda.device.cupy_driver import Driver, Stream
from mpibow.cuda.exchange.nccl import Nccl, open_nccl
from mpibow.cuda.exchange.probe import takes_device_arrays
from mpibow.cuda.exchange.staged import Direct, Staged
from mpibow.errors import CommunicationError

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
) -> tuple[Nccl | Direct, str]:
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
        transport, why = "mpi", "ranks share a GPU, so they average by MPI"
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
