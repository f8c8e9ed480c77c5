"""Launches of mpibow's own kernels as runs: arguments are laid out once, a run only enqueues."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpibow.cuda.device.cupy_driver import Driver, Stream
from mpibow.cuda.device.machine import Machine
from mpibow.cuda.kernels.compile import compiled
from mpibow.cuda.kernels.cudnn import Enqueue
from mpibow.cuda.kernels.kernels import KERNELS, Constant, Launch
from mpibow.graph.graph import Array

Bind = Callable[[Sequence[Launch]], Enqueue]  # makes a run of launches
Compile = Callable[[str, str, Path | None, int, str], Any]  # source, architecture, kept in, CUDA, formula -> Module


class Launcher:
    """Modules are compiled for the GPU in use and loaded when the first of their kernels is bound; never captured."""

    def __init__(self, machine: Machine, folder: Path | None, compile_: Compile = compiled) -> None:
        major, minor = machine.found.gpu.capability
        self.machine, self._driver, self._folder, self._compile = machine, machine.driver, folder, compile_
        self.architecture, self._cuda = f"sm_{major}{minor}", machine.driver.runtime() // 1000
        self._modules: dict[tuple[str, str], tuple[Any, Any]] = {}  # by source and formula
        self._functions: dict[tuple[str, str], Any] = {}  # by kernel and formula
        self.constants: dict[tuple[str, bytes], Any] = {}

    def __call__(self, launches: Sequence[Launch]) -> Enqueue:
        calls = [_Call(self._driver, self._function(one.kernel, one.formula), one, self._constant) for one in launches]

        def run(stream: Any) -> None:
            for call in calls:
                call(stream)

        return run

    def _function(self, kernel: str, formula: str) -> Any:
        if (kernel, formula) not in self._functions:
            source = KERNELS[kernel]
            if (source, formula) not in self._modules:
                module = self._compile(source, self.architecture, self._folder, self._cuda, formula)
                self._modules[source, formula] = self._driver.load(module.code), module.names
            loaded, names = self._modules[source, formula]
            self._functions[kernel, formula] = self._driver.function(loaded, names[kernel])
        return self._functions[kernel, formula]

    def _constant(self, array: Array) -> Any:
        key = (array.dtype.str, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self.machine.zeros(array.shape, array.dtype, "tables of kernels")
            self.machine.put(self.constants[key], np.ascontiguousarray(array))
        return self.constants[key]


class _Call:
    """A kernel with its parameters in memory as the driver reads them."""

    def __init__(self, driver: Driver, function: Any, launch: Launch, constant: Callable[[Array], Any]) -> None:
        self._driver, self._function, self._grid, self._block = driver, function, launch.grid, launch.block
        self._held: list[Any] = [launch]  # keeps the parameters' targets alive
        for argument in launch.arguments:
            self._held.append(constant(argument.array) if isinstance(argument, Constant) else argument)
        self._values = values = [parameter(argument) for argument in self._held[1:]]
        self._parameters = (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
        self._address = ctypes.addressof(self._parameters)

    def __call__(self, stream: Stream) -> None:
        self._driver.launch(self._function, self._grid, self._block, self._address, stream)


def parameter(argument: Any) -> Any:
    """An array's address, or a number's or a record's own bytes."""
    if argument is None:
        return ctypes.c_uint64(0)
    if isinstance(argument, np.generic):
        content = argument.tobytes()
        return (ctypes.c_char * len(content)).from_buffer_copy(content)
    return ctypes.c_uint64(int(argument.data.ptr))
