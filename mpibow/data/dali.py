"""NVIDIA DALI as a reader: not there yet."""

from __future__ import annotations

from collections.abc import Callable

from mpibow.data.dataset import Array
from mpibow.data.recordset import RecordSet
from mpibow.data.slots import Slot
from mpibow.errors import DamagedRecord


def available() -> str:
    """'' where DALI can be used, else what is missing and how to get it."""
    return "NVIDIA DALI is not installed: pip install 'mpibow[dali]'"


class Dali:
    """Decodes runs of `samples` images into slots, `depth` of them at once."""

    def __init__(
        self, data: RecordSet, windows: Callable[[Array, Array], Array], size: int, *, threads: int,
        device: int | None = None, samples: int = 64, depth: int = 2,
        damaged: Callable[[DamagedRecord], int] | None = None,
    ) -> None:  # fmt: skip
        self.samples, self.depth = samples, depth

    def begin(self, slots: list[Slot]) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass
