"""CUDA through CuPy: few methods, so that a test can simulate them. Nothing here has run on a GPU yet."""

import ctypes
import gc
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mpibow.cuda.device import libraries
from mpibow.errors import DeviceError, install

from .array import PlanArray
from .driver import DeviceProperties, OutOfMemory, Refused

CupyObject: TypeAlias = Any  # CuPy has no types
MODES = {0: "default", 2: "prohibited", 3: "exclusive"}  # cudaComputeMode
COMPUTE_MODE = 20  # cudaDevAttrComputeMode
SUCCESS, NOT_READY = 0, 600  # cudaError_t


def load_cupy() -> ModuleType:
    """The module cupy, with the libraries of its CUDA loaded. Raises DeviceError with what to install."""
    libraries.before_cuda()
    try:
        import cupy

        libraries.open_libraries(int(cupy.cuda.runtime.runtimeGetVersion()) // 1000)
    except ModuleNotFoundError as error:
        missing = "CuPy" if error.name == "cupy" else f"{error.name}, which CuPy needs,"
        raise DeviceError(f"device cuda: {missing} is not installed: {install('cuda')}") from None
    except (ImportError, OSError) as error:
        why = str(error).splitlines()[0]
        raise DeviceError(f"device cuda: CuPy cannot be loaded ({why}): {install('cuda')}") from None
    loaded: ModuleType = cupy
    return loaded


@contextmanager
def _refusals(cupy: ModuleType) -> Iterator[None]:
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise OutOfMemory(str(error)) from None
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if "MemoryAllocation" in str(error):
            raise OutOfMemory(str(error)) from None
        raise Refused(str(error)) from None
    except cupy.cuda.driver.CUDADriverError as error:
        raise Refused(str(error)) from None


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's garbage collection on any thread: memory that it frees on this one ends a capture."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def come(cupy: ModuleType, status: int) -> bool:
    """Whether work is over, by what CUDA answers: CuPy hands on any status, and raises nothing."""
    if status not in (SUCCESS, NOT_READY):
        raise _failed(cupy.cuda.runtime.CUDARuntimeError(status))
    return status == SUCCESS


def _failed(error: Exception) -> Refused:
    """The error of any call on a stream once work on the device has failed."""
    return Refused(f"the GPU has failed: {error}")


class _Failing:
    """A block in which CUDA's errors are those of work that has failed on the device."""

    def __init__(self, cupy: ModuleType):
        self._error = cupy.cuda.runtime.CUDARuntimeError

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, self._error):
            raise _failed(error) from None


class Event:
    """A point in a stream's work. Methods raise Refused where the work before it has failed."""

    def __init__(self, cupy: ModuleType, event: CupyObject):
        self._cupy, self.event = cupy, event

    @property
    def done(self) -> bool:
        return come(self._cupy, self._cupy.cuda.runtime.eventQuery(self.event.ptr))

    def synchronise(self) -> None:
        with _Failing(self._cupy):
            self.event.synchronize()


class CudaGraph:
    """Captured work, ready to be launched on a stream."""

    def __init__(self, cupy: ModuleType, graph: CupyObject):
        self._failing, self._graph = _Failing(cupy), graph

    def launch(self, stream: "Stream") -> None:
        with self._failing:
            self._graph.launch(stream.stream)


class Stream:
    """Work that runs in order on the device. Methods raise Refused where some of it has failed.

    Events carry no times unless asked for: recording them is cheaper then.
    """

    def __init__(self, cupy: ModuleType, priority: int):
        self._cupy, self._failing = cupy, _Failing(cupy)
        self.stream = cupy.cuda.Stream(non_blocking=True, priority=priority)

    @property
    def pointer(self) -> int:
        return int(self.stream.ptr)

    @property
    def done(self) -> bool:
        return come(self._cupy, self._cupy.cuda.runtime.streamQuery(self.stream.ptr))

    def record(self, *, timed: bool = False) -> Event:
        """The point that its work has reached when all enqueued so far is over."""
        with self._failing:
            event = self._cupy.cuda.Event(block=True, disable_timing=not timed)  # who waits for it sleeps
            event.record(self.stream)
        return Event(self._cupy, event)

    def wait(self, event: Event) -> None:
        with self._failing:
            self.stream.wait_event(event.event)

    def synchronise(self) -> None:
        with self._failing:
            self.stream.synchronize()

    def capture(self, enqueue: Callable[[], None]) -> CudaGraph:
        """The work that `enqueue` enqueues, as a graph; nothing of it runs. Ends the capture as well where it fails.

        Python's garbage collection rests meanwhile: memory that it gave back would end the capture.
        """
        # Thread-local: other learners may allocate and launch on their streams meanwhile.
        mode = self._cupy.cuda.runtime.streamCaptureModeThreadLocal
        with _refusals(self._cupy), self.stream, _no_collection():
            self.stream.begin_capture(mode)
            try:
                enqueue()
            except BaseException:
                with suppress(self._cupy.cuda.runtime.CUDARuntimeError):  # it must be ended all the same
                    self.stream.end_capture()
                raise
            graph = self.stream.end_capture()
            graph.upload(self.stream)
        return CudaGraph(self._cupy, graph)

    def milliseconds(self, begin: Event, end: Event) -> float:
        """Between two timed events that are over."""
        return float(self._cupy.cuda.get_elapsed_time(begin.event, end.event))


class Driver:
    """CUDA for one rank. Methods raise Refused where CUDA refuses, and OutOfMemory.

    Memory is taken from CUDA itself, in few large pieces that live long: CuPy's pools are one a stream, and what one
    stream frees another may still read."""

    def __init__(self) -> None:
        self._cupy = load_cupy()
        self._runtime = self._cupy.cuda.runtime

    def version(self) -> int:
        """The newest CUDA that the driver serves, 13000 for 13.0; 0 without a driver."""
        try:
            return int(self._runtime.driverGetVersion())
        except self._runtime.CUDARuntimeError:
            return 0

    def runtime(self) -> int:
        """The CUDA that CuPy was built for."""
        return int(self._runtime.runtimeGetVersion())

    def count(self) -> int:
        with _refusals(self._cupy):
            return int(self._runtime.getDeviceCount())

    def describe(self, index: int) -> DeviceProperties:
        with _refusals(self._cupy):
            found = self._runtime.getDeviceProperties(index)
            mode = MODES.get(self._runtime.deviceGetAttribute(COMPUTE_MODE, index), "default")
            bus = self._runtime.deviceGetPCIBusId(index)
        capability = (found["major"], found["minor"])
        return DeviceProperties(
            index, found["name"].decode(), uuid_of(index), bus.lower(), capability, found["totalGlobalMem"], mode
        )

    def use(self, index: int) -> None:
        """Makes it this process's device; opens a context on it."""
        with _refusals(self._cupy):
            self._runtime.setDevice(index)
            self._runtime.free(0)  # opens the context now, so that errors show here

    def memory(self) -> tuple[int, int]:
        """Free and all bytes of the device in use."""
        with _refusals(self._cupy):
            free, total = self._runtime.memGetInfo()
        return int(free), int(total)

    def allocate(self, size: int) -> PlanArray:
        """A device array (size,) of bytes, all 0, for as long as it is referenced."""
        cupy = self._cupy
        with _refusals(cupy):
            array = cupy.ndarray((size,), cupy.uint8, memptr=cupy.cuda.MemoryPointer(cupy.cuda.Memory(max(size, 1)), 0))
            stream = cupy.cuda.Stream(non_blocking=True)  # waits for no learner, as the whole device would
            self._runtime.memsetAsync(array.data.ptr, 0, max(size, 1), stream.ptr)
            stream.synchronize()
        return array

    def pinned(self, size: int) -> npt.NDArray[np.uint8]:
        """A NumPy array (size,) of page-locked bytes."""
        with _refusals(self._cupy):
            memory = self._cupy.cuda.PinnedMemory(max(size, 1))
            return np.frombuffer(self._cupy.cuda.PinnedMemoryPointer(memory, 0), np.uint8, size)

    def stream(self, priority: int = 0) -> Stream:
        """A new stream that does not wait for the default one; less is more urgent."""
        with _refusals(self._cupy):
            return Stream(self._cupy, priority)

    def copy(self, target: PlanArray, source: PlanArray, stream: Stream) -> None:
        """Enqueues a copy of as many bytes, to or from the device."""
        assert target.nbytes == source.nbytes, (target.nbytes, source.nbytes)
        with _refusals(self._cupy):
            self._runtime.memcpyAsync(
                address_of(target), address_of(source), source.nbytes, self._runtime.memcpyDefault, stream.pointer
            )

    def load(self, code: bytes) -> int:
        """A module of compiled kernels."""
        with _refusals(self._cupy):
            return int(self._cupy.cuda.driver.moduleLoadData(code))

    def function(self, module: int, name: str) -> int:
        """A kernel of a module, by its name there."""
        with _refusals(self._cupy):
            return int(self._cupy.cuda.driver.moduleGetFunction(module, name))

    def launch(
        self, function: int, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: int, stream: Stream
    ) -> None:
        """Enqueues a kernel; the address `parameters` holds the addresses of its parameters, in order."""
        with _refusals(self._cupy):
            self._cupy.cuda.driver.launchKernel(function, *grid, *block, 0, stream.pointer, parameters, 0)


def address_of(array: PlanArray) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def uuid_of(index: int) -> str:
    """The UUID of a visible GPU, or of its MIG slice, from the driver: CuPy cuts it at its first zero byte."""
    number = (ctypes.c_ubyte * 16)()
    library = ctypes.CDLL("libcuda.so.1")
    ask = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
    status = ask(ctypes.byref(number), ctypes.c_int(index))
    if status:
        raise Refused(f"cuDeviceGetUuid of GPU {index}: error {status}")
    return f"GPU-{uuid.UUID(bytes=bytes(number))}"  # as nvidia-smi writes and reads it


@contextmanager
def nvtx_range(name: str) -> Iterator[None]:
    """The host's work inside is `name` in a profiler's timeline."""
    nvtx = load_cupy().cuda.nvtx
    nvtx.RangePush(name)
    try:
        yield
    finally:
        nvtx.RangePop()
