"""cuDNN on streams: a handle for each, plans bound to arrays that only enqueue, and the time that a plan takes.

Python needs longer to enqueue a plan than many a kernel runs, so for its time runs are captured once and only replays
are timed. Not run on a device yet.
"""

import statistics
import threading
from collections.abc import Callable

import numpy as np

from mpibow.cuda.device.array import PlanArray, PlanArrays
from mpibow.cuda.device.cupy_driver import Driver, Stream
from mpibow.cuda.device.driver import OutOfMemory
from mpibow.cuda.device.machine import REMEDY, DeviceFull
from mpibow.errors import DeviceError
from mpibow.graph import Array
from mpibow.system import aligned, in_words

from .graphs import first_line, load_cudnn, refusals
from .plans import Executable, Planner
from .specs import Spec

Enqueue = Callable[[Stream], None]  # enqueues on the stream; allocates nothing, waits for nothing
Address = Callable[[PlanArray, str], int]  # an array's address on the device, as one of that dtype


class Handles:
    """One cuDNN handle a stream, made when the stream is first bound to: never while one is being captured."""

    def __init__(self) -> None:
        self._of = dict[int, int]()
        self._lock = threading.Lock()

    def of(self, stream: Stream) -> int:
        with self._lock:
            if stream.pointer not in self._of:
                cudnn = load_cudnn()
                try:
                    handle = cudnn.create_handle()
                    cudnn.set_stream(handle, stream.pointer)
                except refusals() as error:
                    raise DeviceError(
                        f"device cuda: cuDNN {cudnn.backend_version_string()} cannot start: {first_line(error)}"
                    ) from None
                self._of[stream.pointer] = handle
            return self._of[stream.pointer]


def pointer_of(array: PlanArray, dtype: str) -> int:
    """A CuPy array's address. It must hold that dtype; for 16-bit floats that NumPy lacks, any type of their size."""
    held = array.dtype.name
    assert held == dtype or (array.dtype.itemsize == 2 and dtype in ("bfloat16", "float16")) or held == "uint8", (
        f"an array of {held} where {dtype} is wanted"
    )
    return int(array.data.ptr)


class Cudnn:
    """Binds specs to arrays. `address` returns an array's address: for a rank that computes in 16 bits,
    that of the copy of its float32 weights.
    """

    def __init__(self, planner: Planner, handles: Handles, address: Address = pointer_of):
        self.planner, self.handles, self._address = planner, handles, address

    def workspace(self, *specs: Spec | None) -> int:
        """Bytes of scratch that these need one after the other."""
        return max((self.planner.plan(spec).workspace for spec in specs if spec is not None), default=0)

    def bind(self, spec: Spec, arrays: PlanArrays, workspace: PlanArray = None) -> Enqueue:
        """The run of `spec` on arrays by operand; `workspace` (bytes,) has the size that `workspace` returned."""
        executable, handles = self.planner.plan(spec), self.handles
        missing = {operand.name for operand in spec.operands} ^ set(arrays)
        assert not missing, f"{spec.kind} is bound without, or with more than, its operands: {sorted(missing)}"
        addresses = {operand.name: self._address(arrays[operand.name], operand.dtype) for operand in spec.operands}
        assert executable.workspace == 0 or workspace.nbytes >= executable.workspace, (spec.kind, executable.workspace)
        scratch = 0 if executable.workspace == 0 else int(workspace.data.ptr)

        def run(stream: Stream) -> None:
            executable.run(addresses, scratch, handles.of(stream))

        return run


def together(runs: list[Enqueue]) -> Enqueue:
    """Several runs as one."""
    if len(runs) == 1:
        return runs[0]

    def run(stream: Stream) -> None:
        for one in runs:
            one(stream)

    return run


ROUNDS, RUNS = 5, 20  # replays that are timed, and runs in each
PATTERN = 1 << 20  # bytes of random numbers that operands are filled with, again and again


def seconds_of(run: Callable[[], None], stream: Stream) -> float:
    """Seconds of one of `run`, which enqueues on `stream`: the median of replays, each of several in a row."""

    def several() -> None:
        for _ in range(RUNS):
            run()

    run()  # libraries load kernels on their first call, which no capture allows
    stream.synchronise()
    graph = stream.capture(several)
    rounds = []
    for _ in range(1 + ROUNDS):
        begin = stream.record(timed=True)
        graph.launch(stream)
        end = stream.record(timed=True)
        end.synchronise()
        rounds.append(stream.milliseconds(begin, end) / RUNS / 1e3)
    return statistics.median(rounds[1:])  # the first warms up


class DeviceTimer:
    """Times a plan on arrays of its own, filled with random numbers: zeros are multiplied faster than data."""

    def __init__(self, driver: Driver, stream: Stream, handle: Callable[[Stream], int]):
        self._driver, self._stream, self._handle = driver, stream, handle
        self._generator = np.random.default_rng(0)

    def __call__(self, executable: Executable) -> float:
        """Seconds of one run. Raises DeviceError where it cannot be run or captured."""
        operands = executable.spec.operands
        handle = self._handle(self._stream)
        size = sum(aligned(o.bytes) for o in operands) + aligned(executable.workspace)
        try:
            block = self._driver.allocate(size)
        except OutOfMemory:
            what = f"{in_words(size)} to time {executable.made.engine} of {executable.spec.kind}"
            raise DeviceFull(f"{what} do not fit on the GPU: {REMEDY}") from None
        addresses, offset = dict[str, int](), 0
        for operand in operands:
            addresses[operand.name] = int(block.data.ptr) + offset
            pattern = random_bytes(operand.dtype, min(operand.bytes, PATTERN), self._generator)
            for start in range(0, operand.bytes, PATTERN):
                part = block[offset : offset + operand.bytes][start : start + PATTERN]
                self._driver.copy(part, pattern[: part.nbytes], self._stream)
            self._stream.synchronise()  # the pattern may go
            offset += aligned(operand.bytes)
        workspace = int(block.data.ptr) + offset

        return seconds_of(lambda: executable.run(addresses, workspace, handle), self._stream)


def random_bytes(dtype: str, size: int, generator: np.random.Generator) -> Array:
    """The bytes (size,) of standard normal numbers of that dtype; of bools any."""
    if dtype == "bool":
        return generator.integers(256, size=size, dtype=np.uint8)
    numbers = generator.standard_normal(size // 2 + 2, np.float32)
    if dtype == "bfloat16":  # a float32's upper half
        found: Array = numbers.view(np.uint16)[1::2].copy()
    else:
        found = numbers.astype(dtype)
    return found.view(np.uint8)[:size]
