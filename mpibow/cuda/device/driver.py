"""The seam to CUDA: few methods, so that all decisions about devices are tested without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mpibow.errors import DeviceError


@dataclass(frozen=True)
class DeviceProperties:
    """One visible GPU: its number here, name, UUID, PCI address, compute capability, bytes of memory.

    `mode` is the compute mode: default, exclusive or prohibited.
    """

    index: int
    name: str
    uuid: str
    bus: str
    capability: tuple[int, int]
    memory: int
    mode: str = "default"

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name}, {self.uuid})"


@dataclass(frozen=True)
class Memory:
    """Device memory that another library holds: its address and size in bytes. Something to copy from or to."""

    ptr: int
    nbytes: int

    @property
    def data(self) -> Memory:
        return self


class OutOfMemory(Exception):
    """The device, or the host for pinned memory, has not enough left."""


class Refused(DeviceError):
    """CUDA's own error, in its words."""


class Event(Protocol):
    """A point in a stream's work. Methods raise Refused where the work before it has failed."""

    @property
    def done(self) -> bool: ...
    def synchronise(self) -> None: ...


class CudaGraph(Protocol):
    """Captured work, ready to be launched on a stream."""

    def launch(self, stream: Any) -> None: ...


class Stream(Protocol):
    """Work that runs in order on the device. Methods raise Refused where some of it has failed."""

    @property
    def pointer(self) -> int: ...

    @property
    def done(self) -> bool:
        """Whether all that was enqueued has run; does not wait."""
        ...

    def record(self, *, timed: bool = False) -> Event:
        """The point that its work has reached when all enqueued so far is over."""
        ...

    def milliseconds(self, begin: Any, end: Any) -> float:
        """Between two timed events that are over."""
        ...

    def wait(self, event: Any) -> None: ...
    def synchronise(self) -> None: ...

    def capture(self, enqueue: Callable[[], None]) -> CudaGraph:
        """The work that `enqueue` enqueues, as a graph; nothing of it runs. Ends the capture as well where it fails.

        Python's garbage collection rests meanwhile: memory that it gave back would end the capture.
        """
        ...


class Driver(Protocol):
    """CUDA for one rank. Methods raise Refused where CUDA refuses, and OutOfMemory."""

    def version(self) -> int:
        """The newest CUDA that the driver serves, 13000 for 13.0; 0 without a driver."""
        ...

    def runtime(self) -> int:
        """The CUDA that CuPy was built for."""
        ...

    def count(self) -> int: ...
    def describe(self, index: int) -> DeviceProperties: ...

    def use(self, index: int) -> None:
        """Makes it this process's device; opens a context on it."""
        ...

    def memory(self) -> tuple[int, int]:
        """Free and all bytes of the device in use."""
        ...

    def allocate(self, size: int) -> Any:
        """A device array (size,) of bytes, all 0, for as long as it is referenced."""
        ...

    def pinned(self, size: int) -> Any:
        """A NumPy array (size,) of page-locked bytes."""
        ...

    def stream(self, priority: int = 0) -> Stream:
        """A new stream that does not wait for the default one; less is more urgent."""
        ...

    def copy(self, target: Any, source: Any, stream: Stream) -> None:
        """Enqueues a copy of as many bytes, to or from the device."""
        ...

    def load(self, code: bytes) -> Any:
        """A module of compiled kernels."""
        ...

    def function(self, module: Any, name: str) -> Any:
        """A kernel of a module, by its name there."""
        ...

    def launch(
        self, function: Any, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: int, stream: Stream
    ) -> None:
        """Enqueues a kernel; the address `parameters` holds the addresses of its parameters, in order."""
        ...
