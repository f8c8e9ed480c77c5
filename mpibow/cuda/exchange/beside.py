"""The common part of communicators of device arrays: objects go by the host's communicator, which stays."""

from typing import Any

from mpibow.comm import Communicator
from mpibow.comm.communicator import InPlace
from mpibow.cuda.device.cupy_driver import Stream


class Beside(InPlace):
    """A communicator beside `host`, whose device arrays are averaged on `stream`."""

    def __init__(self, host: Communicator, stream: Stream):
        self._host, self.stream, self.pulse = host, stream, host.pulse
        self.rank, self.size, self.any_thread = host.rank, host.size, host.any_thread
        self.local_rank, self.local_size = host.local_rank, host.local_size

    def barrier(self) -> None:
        self._host.barrier()

    def share(self, obj: Any) -> list[Any]:
        return self._host.share(obj)

    def close(self, code: int = 0) -> None:
        self.part(failed=code != 0)
        self._host.close(code)

    def part(self, *, failed: bool = False) -> None:
        """Gives up what ends with a run, at once where something `failed`; the host's communicator stays."""
