"""How long work takes on the device, as CUDA graphs run it: the fastest of several plans is chosen by it.

Python needs longer to enqueue a plan than many a kernel runs, so runs are captured once and only replays are timed. Not
run on a device yet.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from mpibow.cuda.device.cupy_driver import Driver, Stream
from mpibow.cuda.device.driver import OutOfMemory
from mpibow.cuda.device.machine import REMEDY
from mpibow.cuda.device.memory import DeviceFull
from mpibow.cuda.kernels.operands import Operand
from mpibow.cuda.kernels.plans import Executable
from mpibow.graph.graph import Array
from mpibow.system.sizes import aligned, in_words

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

    def __init__(self, driver: Driver, stream: Stream, handle: Callable[[Stream], Any]) -> None:
        self._driver, self._stream, self._handle = driver, stream, handle
        self._generator = np.random.default_rng(0)

    def __call__(self, executable: Executable) -> float:
        """Seconds of one run. Raises DeviceError where it cannot be run or captured."""
        operands, handle = executable.spec.operands, self._handle(self._stream)
        size = sum(aligned(o.bytes) for o in operands) + aligned(executable.workspace)
        try:
            block = self._driver.allocate(size)
        except OutOfMemory:
            what = f"{in_words(size)} to time {executable.made.engine} of {executable.spec.kind}"
            raise DeviceFull(f"{what} do not fit on the GPU: {REMEDY}") from None
        addresses, offset = dict[str, int](), 0
        for operand in operands:
            addresses[operand.name] = int(block.data.ptr) + offset
            self._fill(block[offset : offset + operand.bytes], operand)
            offset += aligned(operand.bytes)
        workspace = int(block.data.ptr) + offset

        return seconds_of(lambda: executable.run(addresses, workspace, handle), self._stream)

    def _fill(self, target: Any, operand: Operand) -> None:
        pattern = random_bytes(operand.dtype, min(operand.bytes, PATTERN), self._generator)
        for start in range(0, target.nbytes, PATTERN):
            part = target[start : start + PATTERN]
            self._driver.copy(part, pattern[: part.nbytes], self._stream)
        self._stream.synchronise()  # the pattern may go


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
