"""A rank's GPU as the parts of a run use it: memory, arrays, copies, one stream for averaging, and its events."""

import math

import numpy as np
import numpy.typing as npt

from mpibow.errors import DeviceError
from mpibow.graph import Array
from mpibow.system import in_words

from .array import DeviceArray, PlanArray
from .cupy_driver import Driver, Event
from .driver import DeviceProperties, OutOfMemory
from .find import Found

URGENT = -1  # priority of the averaging stream: all learners wait for it
REMEDY = "use fewer learners, or a smaller batch_size"


class Machine:
    """All averaging runs on `stream`, in the order of the calls; learners have streams of their own.

    `ready` is the last event before learners may read weights: their streams wait for it.
    """

    def __init__(self, driver: Driver, found: Found):
        self.driver, self.found = driver, found
        self.memory = DeviceMemory(driver, found.gpu)
        self.stream = driver.stream(URGENT)
        self.ready: Event | None = None
        self._numbers = 0
        self._staging: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    def attach(self) -> None:
        """To be called on a thread before it does anything here: the device in use is each thread's own."""
        self.driver.use(self.found.gpu.index)

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike, what: str = "averaging") -> DeviceArray:
        """Zeros that stay for the run; `what`, their purpose, is in the message of a full memory."""
        shape = (shape,) if isinstance(shape, int) else shape
        self._numbers += 1
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return DeviceArray.over(self.memory.block(f"{what} ({self._numbers})", size, REMEDY), dtype, shape)

    def mark(self) -> None:
        """Learners wait for the work enqueued on the averaging stream so far before they read weights."""
        self.ready = self.stream.record()

    def put(self, target: DeviceArray, source: PlanArray) -> None:
        """target <- an array of the host or the device; one row goes to all rows. Waits where it is the host's."""
        if target.size == 0:
            return
        if isinstance(source, np.ndarray) and not target.c_contiguous:
            for i in range(len(target)):
                self.put(target[i], source if source.ndim < target.ndim else source[i])
        elif isinstance(source, np.ndarray):
            staged = self._staged(target.nbytes).view(target.dtype).reshape(target.shape)
            np.copyto(staged, source.reshape(target.shape[target.ndim - source.ndim :]))
            self.driver.copy(target, staged.reshape(-1), self.stream)
            self.stream.synchronise()  # the staging memory may be written again
        else:
            for row in [target] if target.size == source.size else [target[i] for i in range(len(target))]:
                self.driver.copy(row, source, self.stream)
        self.mark()

    def host(self, array: DeviceArray) -> Array:
        """A copy of the array on the host, once all averaging has run. Waits."""
        if array.size == 0:
            return np.zeros(array.shape, array.dtype)
        if not array.c_contiguous:
            return np.stack([self.host(array[i]) for i in range(len(array))])
        staged = self._staged(array.nbytes)
        self.driver.copy(staged, array, self.stream)
        self.stream.synchronise()
        found: Array = staged.view(array.dtype).reshape(array.shape).copy()
        return found

    def _staged(self, size: int) -> npt.NDArray[np.uint8]:
        if self._staging.nbytes < size:
            self._staging = self.memory.pinned("copies between host and GPU", size)
        return self._staging[:size]


class DeviceFull(DeviceError, MemoryError):
    """The error of memory that does not fit, as when a tuner tries one learner more."""


class DeviceMemory:
    """Blocks stay until they are released by name. Learners take none while an iteration runs; any thread may."""

    def __init__(self, driver: Driver, gpu: DeviceProperties):
        self._driver, self._gpu = driver, gpu
        self._blocks = dict[str, PlanArray]()
        self.peak = 0  # bytes held at once, of this rank

    @property
    def held(self) -> int:
        return sum(block.nbytes for block in list(self._blocks.values()))  # others may take some meanwhile

    def block(self, name: str, size: int, remedy: str) -> PlanArray:
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

    def pinned(self, name: str, size: int) -> npt.NDArray[np.uint8]:
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
