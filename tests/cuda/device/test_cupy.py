"""CuPy as far as it goes without a GPU: what is said where it, or the driver, is missing."""

import ctypes
import gc
import importlib.util
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from mpibow.comm import Single
from mpibow.cuda.device import cupy_driver
from mpibow.cuda.device.cupy_driver import Driver, load_cupy, uuid_of
from mpibow.cuda.device.driver import OutOfMemory, Refused
from mpibow.cuda.device.find import find_device
from mpibow.cuda.exchange.nccl import load_nccl, open_nccl
from mpibow.errors import CommunicationError, DeviceError
from tests.cuda.device.fakes import FakeStream
from tests.refusals import refusal_of, refuses

needs_cupy = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="CuPy is not installed: pip install -e '.[cuda]'"
)


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


without_driver = pytest.mark.skipif(has_driver(), reason="there is a driver here")


@needs_cupy
@without_driver
def test_without_a_driver():
    driver = Driver()
    assert driver.version() == 0
    assert driver.runtime() >= 12000
    for refused in (driver.count, driver.memory, lambda: driver.allocate(16), lambda: driver.pinned(16)):
        with pytest.raises(Refused, match="cudaErrorInsufficientDriver: "):
            refused()
    with refuses(
        "device cuda: no NVIDIA driver here: install one, in a container start it with --gpus, "
        "or compute without one: device=onednn",
        DeviceError,
    ):
        find_device(driver, Single(), host="here", allowed=[0])


def nccl_missing() -> str:
    try:
        load_nccl()
    except CommunicationError as error:
        return str(error)
    return ""


@without_driver
@pytest.mark.skipif(bool(nccl_missing()), reason=nccl_missing())
def test_nccl_without_a_driver():
    """The identity is made, the communicator refused."""
    assert load_nccl().get_version() > 22000
    assert refusal_of(open_nccl, Single(), FakeStream("sync", []), error=CommunicationError).startswith(
        "NCCL cannot connect the 1 ranks: NCCL_ERROR_"
    )


def test_without_cupy(monkeypatch):
    for name in ("cupy", "cupy.cuda"):
        monkeypatch.setitem(sys.modules, name, None)
    with refuses("device cuda: CuPy is not installed: pip install -e '.[cuda]'", DeviceError):
        load_cupy()
    assert refusal_of(load_nccl, error=CommunicationError).startswith("NCCL: CuPy cannot be loaded (")


class FakeLibrary:
    """libcuda with one GPU."""

    def __init__(self, status: int) -> None:
        self.status = status

    def cuDeviceGetUuid_v2(self, number, index) -> int:
        assert index.value == 3
        ctypes.memmove(number, bytes(range(16)), 16)
        return self.status


def test_a_uuid_with_a_zero_byte(monkeypatch):
    monkeypatch.setattr(cupy_driver.ctypes, "CDLL", lambda name: FakeLibrary(0))
    assert uuid_of(3) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    monkeypatch.setattr(cupy_driver.ctypes, "CDLL", lambda name: FakeLibrary(101))
    with pytest.raises(Refused, match="cuDeviceGetUuid of GPU 3: error 101"):
        uuid_of(3)


class DriverError(RuntimeError):
    """cupy.cuda.driver.CUDADriverError."""


class Runtime:
    """cupy.cuda.runtime as far as errors and streams go."""

    class CUDARuntimeError(RuntimeError):
        def __init__(self, status: object) -> None:
            super().__init__(f"error {status}" if isinstance(status, int) else status)

    streamCaptureModeThreadLocal = 1
    status = 0

    def eventQuery(self, event: int) -> int:
        assert event == 6
        return self.status

    def streamQuery(self, stream: int) -> int:
        assert stream == 5
        return self.status

    def memGetInfo(self) -> tuple[int, int]:
        raise self.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")


class CupyStreamOfFakes:
    """cupy.cuda.Stream: notes what it is told; `lost` is what end_capture raises."""

    def __init__(self, log: list, lost: Exception | None = None) -> None:
        self.log, self._lost, self.ptr = log, lost, 5

    def __enter__(self) -> None:
        self.log.append("enter")

    def __exit__(self, *_: object) -> None:
        self.log.append("exit")

    def begin_capture(self, mode: int) -> None:
        self.log.append(("begin", mode))

    def end_capture(self):
        self.log.append("end")
        if self._lost:
            raise self._lost
        return SimpleNamespace(
            upload=lambda stream: self.log.append("upload"), launch=lambda stream: self.log.append("launch")
        )


def cupy_with(**more):
    """CuPy, of which `more` is used."""
    cuda = {
        "runtime": Runtime(), "memory": SimpleNamespace(OutOfMemoryError=MemoryError),
        "driver": SimpleNamespace(CUDADriverError=DriverError), **more,
    }  # fmt: skip
    return SimpleNamespace(cuda=SimpleNamespace(**cuda))


def stream_on(log: list, lost: Exception | None = None) -> cupy_driver.Stream:
    return cupy_driver.Stream(cupy_with(Stream=lambda non_blocking, priority: CupyStreamOfFakes(log, lost)), 0)


@pytest.mark.parametrize("what", ["event", "stream"])
def test_work_is_over_under_way_or_has_failed(what):
    """After an illegal access CUDA answers 700 for ever: that is no work under way."""
    stream = stream_on([])
    runtime = stream._cupy.cuda.runtime
    asked = stream if what == "stream" else cupy_driver.Event(stream._cupy, SimpleNamespace(ptr=6))
    for runtime.status, done in ((0, True), (600, False)):
        assert asked.done is done
    for runtime.status in (700, 1, -1):
        with pytest.raises(Refused, match=f"^the GPU has failed: error {runtime.status}$"):
            _ = asked.done


@needs_cupy
def test_the_installed_cupys_words_for_a_status():
    with refuses("the GPU has failed: cudaErrorIllegalAddress: an illegal memory access was encountered", Refused):
        cupy_driver.come(load_cupy(), 700)


@pytest.mark.parametrize("call", ["event", "graph", "record", "wait", "synchronise"])
def test_a_failed_gpu_ends_in_words_whatever_is_called(call):
    def fail(*_: object) -> None:
        raise Runtime.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    stream = stream_on([])
    cupy = stream._cupy
    cupy.cuda.Event = lambda **flags: SimpleNamespace(record=fail)
    stream.stream = SimpleNamespace(wait_event=fail, synchronize=fail)
    event = cupy_driver.Event(cupy, SimpleNamespace(synchronize=fail))
    calls = {
        "event": event.synchronise, "record": stream.record, "wait": lambda: stream.wait(event),
        "graph": lambda: cupy_driver.CudaGraph(cupy, SimpleNamespace(launch=fail)).launch(stream),
        "synchronise": stream.synchronise,
    }  # fmt: skip
    with pytest.raises(DeviceError, match=r"^the GPU has failed: cudaErrorIllegalAddress: an illegal memory access "):
        calls[call]()


@pytest.mark.parametrize("fails", [False, True])
def test_no_garbage_is_collected_in_a_capture(fails):
    """It may hold device memory, and giving that back ends the capture."""
    collected = []

    class Garbage:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            collected.append(1)

    def kernels() -> None:
        for _ in range(50):
            Garbage()
        assert not collected
        if fails:
            raise ValueError

    limits = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with nullcontext() if not fails else pytest.raises(ValueError):  # noqa: PT011
            stream_on([]).capture(kernels)
        assert gc.isenabled()
    finally:
        gc.set_threshold(*limits)
    gc.collect()
    assert len(collected) == 50


def test_garbage_is_left_alone_where_the_user_collects_none():
    gc.disable()
    try:
        stream_on([]).capture(lambda: None)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_capture():
    log = []
    stream = stream_on(log)
    graph = stream.capture(lambda: log.append("kernels"))
    assert log == ["enter", ("begin", 1), "kernels", "end", "upload", "exit"]
    graph.launch(stream)
    assert log[-1] == "launch"


def test_a_capture_that_fails_is_ended():
    log = []
    with pytest.raises(ZeroDivisionError):
        stream_on(log, Runtime.CUDARuntimeError("cudaErrorStreamCaptureInvalidated")).capture(lambda: 1 // 0)
    assert log == ["enter", ("begin", 1), "end", "exit"]


def test_a_capture_that_cuda_refuses():
    with pytest.raises(Refused, match="cudaErrorStreamCaptureInvalidated: previous error"):
        stream_on([], Runtime.CUDARuntimeError("cudaErrorStreamCaptureInvalidated: previous error")).capture(
            lambda: None
        )


def test_out_of_memory_is_told_from_other_errors(monkeypatch):
    monkeypatch.setattr(cupy_driver, "load_cupy", cupy_with)
    with pytest.raises(OutOfMemory, match="cudaErrorMemoryAllocation: out of memory"):
        Driver().memory()


def test_memory_is_cleared_on_a_stream_of_its_own_and_events_let_who_waits_sleep(
    monkeypatch,
):
    """Nothing here waits for the whole device: learners compute on it, or are being captured."""
    log = []

    class Stream:
        ptr = 5

        def __init__(self, non_blocking: bool, priority: int = 0) -> None:
            log.append(("stream", non_blocking))

        def synchronize(self) -> None:
            log.append("synchronise")

    class Event:
        def __init__(self, **flags: bool) -> None:
            log.append(flags)

        def record(self, stream: Stream) -> None:
            log.append(("record", stream.ptr))

    runtime = SimpleNamespace(
        CUDARuntimeError=RuntimeError, memsetAsync=lambda *arguments: log.append(("clear", *arguments))
    )
    cupy = cupy_with(
        runtime=runtime, Stream=Stream, Event=Event, Memory=lambda size: size,
        MemoryPointer=lambda *both: both,
    )  # fmt: skip

    cupy.uint8 = "u1"
    cupy.ndarray = lambda shape, dtype, memptr: SimpleNamespace(
        shape=shape, memptr=memptr, data=SimpleNamespace(ptr=77)
    )
    monkeypatch.setattr(cupy_driver, "load_cupy", lambda: cupy)
    driver = Driver()
    for size, taken in ((16, 16), (0, 1)):
        made = driver.allocate(size)
        assert (made.shape, made.memptr) == ((size,), (taken, 0))
        assert log == [("stream", True), ("clear", 77, 0, taken, 5), "synchronise"]
        log.clear()
    stream = driver.stream()
    stream.record()
    stream.record(timed=True)
    assert log == [
        ("stream", True), {"block": True, "disable_timing": True}, ("record", 5),
        {"block": True, "disable_timing": False}, ("record", 5),
    ]  # fmt: skip


def test_kernels_are_loaded_and_launched(monkeypatch):
    """Grid, block, no dynamic shared memory, the stream, where the parameters' addresses are; errors are Refused."""
    log = []

    def refuse(code: bytes) -> int:
        raise DriverError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available")

    driver = SimpleNamespace(
        CUDADriverError=DriverError, moduleLoadData=lambda code: log.append(("load", code)) or 7,
        moduleGetFunction=lambda module, name: log.append(("function", module, name)) or 8,
        launchKernel=lambda *arguments: log.append(("launch", *arguments)),
    )  # fmt: skip
    monkeypatch.setattr(cupy_driver, "load_cupy", lambda: cupy_with(driver=driver))
    made = cupy_driver.Driver()
    module = made.load(b"cubin")
    made.launch(made.function(module, "name"), (3, 2, 1), (256, 1, 1), 99, SimpleNamespace(pointer=5))
    assert log == [
        ("load", b"cubin"), ("function", 7, "name"), ("launch", 8, 3, 2, 1, 256, 1, 1, 0, 5, 99, 0),
    ]  # fmt: skip
    driver.moduleLoadData = refuse
    with pytest.raises(Refused, match="CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available"):
        made.load(b"cubin")
