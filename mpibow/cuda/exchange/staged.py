"""Device arrays by MPI: handed over as they are if the library takes them, else through page-locked memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpibow.comm.communicator import Array, Communicator, flat
from mpibow.cuda.device.cupy_driver import Event, Stream
from mpibow.cuda.exchange.beside import Beside


class Direct(Beside):
    """Device arrays handed to an MPI library that takes them: only after the probe has shown that it does."""

    def allreduce(self, array: Any, stream: Stream | None = None) -> None:
        self._through(array, stream, self._host.allreduce)

    def broadcast(self, array: Any, root: int = 0, stream: Stream | None = None) -> None:
        self._through(array, stream, lambda buffer: self._host.broadcast(buffer, root))

    def wait(self, event: Event, what: str = "all-reduce") -> None:
        event.synchronise()

    def _through(self, array: Any, stream: Stream | None, call: Callable[[Array], None]) -> None:
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
        copy: Callable[[Any, Any, Stream], None],
    ) -> None:
        """`pinned` gives page-locked bytes (size,), `copy` enqueues a copy between device and host."""
        super().__init__(host, stream)
        self._pinned, self._copy, self._buffer = pinned, copy, np.zeros(0, np.uint8)

    def _through(self, array: Any, stream: Stream | None, call: Callable[[Array], None]) -> None:
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
