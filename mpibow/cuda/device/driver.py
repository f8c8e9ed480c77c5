"""What CUDA's driver says: a GPU's properties, and its errors."""

from dataclasses import dataclass

from mpibow.errors import DeviceError


def cuda_version(number: int) -> str:
    """13020 is CUDA 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"


def dotted(version: int) -> str:
    """92800 is 9.28.0, a version of cuDNN or NCCL."""
    return f"{version // 10000}.{version % 10000 // 100}.{version % 100}"


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

    @property
    def computes(self) -> str:
        """The compute capability in words."""
        return "{}.{}".format(*self.capability)

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name}, {self.uuid})"


@dataclass(frozen=True)
class Memory:
    """Device memory that another library holds: its address and size in bytes. Something to copy from or to."""

    ptr: int
    nbytes: int

    @property
    def data(self) -> "Memory":
        return self


class OutOfMemory(Exception):
    """The device, or the host for pinned memory, has not enough left."""


class Refused(DeviceError):
    """CUDA's own error, in its words."""
