"""How long a plan takes on the device: what the fastest of several is chosen by. Not run on one yet."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from mpibow.device.driver import Driver, Stream
from mpibow.device.memory import aligned
from mpibow.graph.graph import Array
from mpibow.kernels.cuda.operands import Operand
from mpibow.kernels.cuda.plans import Executable

WARM_UP, ROUNDS, RUNS = 3, 5, 10
PATTERN = 1 << 20  # bytes of random numbers that operands are filled with, again and again


class DeviceTimer:
    """Times a plan on arrays of its own, filled with random numbers: zeros are multiplied faster than data."""

    def __init__(self, driver: Driver, stream: Stream, handle: Callable[[Stream], Any]) -> None:
        self._driver, self._stream, self._handle = driver, stream, handle
        self._generator = np.random.default_rng(0)

    def __call__(self, executable: Executable) -> float:
        """Seconds of one run: the median of rounds, each of several runs between two events."""
        operands, handle = executable.spec.operands, self._handle(self._stream)
        block = self._driver.allocate(sum(aligned(o.bytes) for o in operands) + aligned(executable.workspace))
        addresses, offset = dict[str, int](), 0
        for operand in operands:
            addresses[operand.name] = int(block.data.ptr) + offset
            self._fill(block[offset : offset + operand.bytes], operand)
            offset += aligned(operand.bytes)
        workspace = int(block.data.ptr) + offset

        def run(times: int) -> None:
            for _ in range(times):
                executable.run(addresses, workspace, handle)

        run(WARM_UP)
        rounds = []
        for _ in range(ROUNDS):
            begin = self._stream.record(timed=True)
            run(RUNS)
            end = self._stream.record(timed=True)
            end.synchronise()
            rounds.append(self._stream.milliseconds(begin, end) / RUNS / 1e3)
        return statistics.median(rounds)

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
