"""Launches of mpibow's own kernels as runs, and a learner's forward and backward as one CUDA graph."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from mpibow.cuda.device.array import DeviceArray, PlanArray
from mpibow.cuda.device.cupy_driver import CudaGraph, Driver, Event, Stream
from mpibow.cuda.device.driver import Refused
from mpibow.cuda.device.machine import Machine
from mpibow.errors import DeviceError
from mpibow.graph import Array

from .compile import Module, compiled
from .cudnn import Enqueue, together
from .kernels import KERNELS, Constant, Launch

Bind = Callable[[Sequence[Launch]], Enqueue]  # makes a run of launches
Compile = Callable[[str, str, Path | None, int, str], Module]  # source, architecture, kept in, CUDA, formula -> Module


class Launcher:
    """Modules are compiled for the GPU in use and loaded when the first of their kernels is bound; never captured."""

    def __init__(self, machine: Machine, folder: Path | None, compile_: Compile = compiled):
        major, minor = machine.found.gpu.capability
        self.machine, self._driver, self._folder, self._compile = machine, machine.driver, folder, compile_
        self.architecture, self._cuda = f"sm_{major}{minor}", machine.driver.runtime() // 1000
        self._modules = dict[tuple[str, str], tuple[int, Mapping[str, str]]]()  # by source and formula
        self._functions = dict[tuple[str, str], int]()  # by kernel and formula
        self.constants = dict[tuple[str, bytes], DeviceArray]()

    def __call__(self, launches: Sequence[Launch]) -> Enqueue:
        return together(
            [_Call(self._driver, self._function(one.kernel, one.formula), one, self._constant) for one in launches]
        )

    def _function(self, kernel: str, formula: str) -> int:
        if (kernel, formula) not in self._functions:
            source = KERNELS[kernel]
            if (source, formula) not in self._modules:
                module = self._compile(source, self.architecture, self._folder, self._cuda, formula)
                self._modules[source, formula] = self._driver.load(module.code), module.names
            loaded, names = self._modules[source, formula]
            self._functions[kernel, formula] = self._driver.function(loaded, names[kernel])
        return self._functions[kernel, formula]

    def _constant(self, array: Array) -> DeviceArray:
        key = (array.dtype.str, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self.machine.zeros(array.shape, array.dtype, "tables of kernels")
            self.machine.put(self.constants[key], np.ascontiguousarray(array))
        return self.constants[key]


class _Call:
    """A kernel with its parameters in memory as the driver reads them."""

    def __init__(self, driver: Driver, function: int, launch: Launch, constant: Callable[[Array], DeviceArray]):
        self._driver, self._function, self._grid, self._block = driver, function, launch.grid, launch.block
        self._held = [constant(each.array) if isinstance(each, Constant) else each for each in launch.arguments]
        self._values = values = [parameter(each) for each in self._held]  # both keep the parameters' targets alive
        self._parameters = (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
        self._address = ctypes.addressof(self._parameters)

    def __call__(self, stream: Stream) -> None:
        self._driver.launch(self._function, self._grid, self._block, self._address, stream)


def parameter(argument: PlanArray) -> ctypes.c_uint64 | ctypes.Array[ctypes.c_char]:
    """An array's address, or a number's or a record's own bytes."""
    if argument is None:
        return ctypes.c_uint64(0)
    if isinstance(argument, np.generic):
        content = argument.tobytes()
        return (ctypes.c_char * len(content)).from_buffer_copy(content)
    return ctypes.c_uint64(int(argument.data.ptr))


Range = Callable[[str], AbstractContextManager[object]]  # a named range in a profiler's timeline: NVTX


class Executor:
    """Bound runs on one stream. Values that change between iterations lie in device memory that they read: inputs,
    counters, weights, rates. So nothing is ever captured again, and a launch waits for nothing.

    With `timed` the events that it gives carry times. Without `graphs` the same runs are enqueued one by one: the same
    kernels on the same memory, so the same bits.
    """

    def __init__(
        self, name: str, runs: Sequence[Enqueue], stream: Stream, *, graphs: bool = True, ranges: Range = nullcontext
    ):
        self.name, self.stream, self.timed = name, stream, False
        self._runs, self._graphs, self._range = tuple(runs), graphs, ranges
        self._graph: CudaGraph | None = None

    def prepare(self) -> None:
        """Runs everything once and captures it. Before the first iteration, on inputs of any kind: libraries load
        kernels and take memory on their first call, which no capture allows. Its results are overwritten, except
        statistics: put those back. Raises DeviceError where it cannot be captured."""
        self._enqueue()
        self.stream.synchronise()
        if not self._graphs:
            return
        try:
            self._graph = self.stream.capture(self._enqueue)
        except Refused as error:
            raise DeviceError(
                f"{self.name}: CUDA cannot capture its work in a graph ({error}): graphs=false works without"
            ) from None

    def run(self) -> Event:
        """Enqueues one forward and backward; the event that it is over. Never waits."""
        assert self._graph is not None or not self._graphs, f"{self.name} is run before it is prepared"
        with self._range(self.name):
            if self._graph is not None:
                self._graph.launch(self.stream)
            else:
                self._enqueue()
            return self.stream.record(timed=self.timed)

    def _enqueue(self) -> None:
        for run in self._runs:
            run(self.stream)
