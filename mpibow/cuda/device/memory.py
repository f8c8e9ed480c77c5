"""A rank's memory on its GPU: few large blocks by name, and the error when one does not fit."""

from __future__ import annotations

from typing import Any

from mpibow.cuda.device.cupy_driver import Driver
from mpibow.cuda.device.driver import DeviceProperties, OutOfMemory
from mpibow.errors import DeviceError
from mpibow.system.sizes import in_words


class DeviceFull(DeviceError, MemoryError):
    """The error of memory that does not fit, as when a tuner tries one learner more."""


class DeviceMemory:
    """Blocks stay until they are released by name. Learners take none while an iteration runs; any thread may."""

    def __init__(self, driver: Driver, gpu: DeviceProperties) -> None:
        self._driver, self._gpu = driver, gpu
        self._blocks: dict[str, Any] = {}
        self.peak = 0  # bytes held at once, of this rank

    @property
    def held(self) -> int:
        return sum(block.nbytes for block in list(self._blocks.values()))  # others may take some meanwhile

    def block(self, name: str, size: int, remedy: str) -> Any:
        """A device array (size,) of zeroed bytes, aligned, held as `name`: "the arenas of 4 learners".

        Raises DeviceError saying how much was needed for what, how much there is, who holds it, and `remedy`.
        """
        assert name not in self._blocks, f"{name} is held already"
        try:
            block = self._driver.allocate(size)
        except OutOfMemory:
            raise DeviceFull(self._full(name, size, remedy)) from None
        self._blocks[name] = block
        self.peak = max(self.peak, self.held)
        return block

    def pinned(self, name: str, size: int) -> Any:
        """Page-locked host memory, a NumPy array (size,) of bytes. Raises DeviceError where the host refuses it."""
        try:
            return self._driver.pinned(size)
        except OutOfMemory:
            raise DeviceError(
                f"{name}: the system cannot lock {in_words(size)} of memory for the GPU's copies: raise the limit "
                "(ulimit -l unlimited), or use fewer slots or a smaller batch_size"
            ) from None

    def release(self, name: str) -> None:
        del self._blocks[name]

    def _full(self, name: str, size: int, remedy: str) -> str:
        free, total = self._driver.memory()
        held = "; ".join(f"{in_words(block.nbytes)} {own}" for own, block in list(self._blocks.items()))
        others = total - free - self.held
        parts = [f"{in_words(free)} of {in_words(total)} are free"]
        parts += [f"mpibow holds {held}"] if held else []
        parts += [f"{in_words(others)} are used by other programs or by CUDA itself"] if others > 0 else []
        return f"{self._gpu}: {in_words(size)} for {name} do not fit: {', '.join(parts)}: {remedy}"
