"""The CUDA kernels on the host: their sources compiled by a C++ compiler, launches run as a device would."""

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from mpibow.cuda.kernels.compile import FORMULA, HEADERS, SOURCES, texts
from mpibow.cuda.kernels.kernels import KERNELS, Constant, Launch
from mpibow.graph import Array

HEADER = Path(__file__).with_name("host.h")
COMPILER = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None)
FLAGS = (
    "-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC",
    "-U_FORTIFY_SOURCE",  # it forbids jumps from stack to stack
)  # fmt: skip
BUILT = Path(__file__).parents[3] / "build" / "cuda-on-host"
MOVERS, PACK = (
    ("window", "cutout", "transpose", "copy_runs", "gather"),
    16,
)  # take any type of a size, or bytes in packs
GUARD = 256  # bytes on either side of an array
NO_COMPILER = "no C++ compiler found (c++, g++ or clang++)"

needs_compiler = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


def prepared(*sources: str):
    """A fixture that compiles, once and before the tests of its module, so that none of them does."""

    @pytest.fixture(scope="module", autouse=True)
    def prepare() -> None:
        for source in sources:
            library(source)

    return prepare


class Library:
    """Kernels of the file `source`, each with a function that runs it and one that says what it takes."""

    def __init__(self, source: Path, kernels: Sequence[str], formula: str = "") -> None:
        self._library = _compiled(source, kernels, formula)
        self._numbers = {kernel: i for i, kernel in enumerate(kernels)}
        self._signatures = {}

    def signature(self, kernel: str) -> list[str]:
        """What each parameter is, in the words of host.h's `parameter`."""
        if kernel not in self._signatures:
            self._signatures[kernel] = self._text("signature", kernel).split(", ")
        return self._signatures[kernel]

    def run(self, kernel: str, *arguments) -> str:
        """What went wrong, or nothing."""
        return self._text("run", kernel, *arguments)

    def _text(self, what: str, kernel: str, *arguments) -> str:
        function = getattr(self._library, f"{what}_{self._numbers[kernel]}")
        function.restype = ctypes.c_char_p
        said = function(*arguments)
        return (said or b"").decode()


@cache
def library(source: str, formula: str = "") -> Library:
    """All kernels of one of the package's sources, with `formula` as its local step where it is given."""
    return Library(SOURCES / source, [kernel for kernel, file in KERNELS.items() if file == source], formula)


def _compiled(source: Path, kernels: Sequence[str], formula: str) -> ctypes.CDLL:
    lines = ['#include "host.h"', f'#include "{source}"']
    for i, kernel in enumerate(kernels):
        lines += [
            f'extern "C" const char* run_{i}(const unsigned* shape, int backwards, void** arguments) '
            f"{{ return host::launch({kernel}, shape, backwards, arguments); }}",
            f'extern "C" const char* signature_{i}() '
            f"{{ static const std::string all = host::signature({kernel}); return all.c_str(); }}",
        ]
    text = "\n".join(lines) + "\n"
    key = text, HEADER.read_text(), source.read_text(), sorted(texts().items()), FLAGS, formula
    folder = _folder(source.name, key)
    headers = {HEADERS.get(source.name, FORMULA): formula} if formula else {}  # found before the package's own
    parsed = _folder("host", (HEADER.read_text(), FLAGS))
    _build(parsed / "host.h.gch", "-x", "c++-header", str(HEADER))  # GCC takes as long to parse it as for a kernel
    places = [f"-I{each}" for each in (folder, parsed, HEADER.parent, SOURCES)]
    return ctypes.CDLL(
        str(_build(folder / "kernels.so", "-shared", *places, "-x", "c++", "-", text=text, headers=headers))
    )


def _folder(name: str, key: object) -> Path:
    folder = BUILT / f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _build(path: Path, *options: str, text: str = "", headers: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Compiles it, with these headers beside it, where it is not there yet: once, as all others wait for the first."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            aside = path.with_suffix(".aside")
            for name, content in headers.items():
                path.with_name(name).write_text(content)
            command = [COMPILER, *FLAGS, *options, "-o", str(aside)]
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=720)
            assert done.returncode == 0, done.stderr
            os.replace(aside, path)
    return path


def _described(argument) -> str:
    """An argument in the words of host.h's `parameter`."""
    dtype = argument.dtype
    letter = (
        "S" if dtype.names else {"float16": "S", "bfloat16": "S", "int64": "q", "bool": "B"}.get(dtype.name, dtype.char)
    )
    return f"{letter}{dtype.itemsize}{'*' if isinstance(argument, np.ndarray) else ''}"


def _fits(kernel: str, argument, parameter: str) -> bool:
    if kernel.split("<")[0] in MOVERS and isinstance(argument, np.ndarray):
        size = int(parameter[1:-1])
        return size in (argument.dtype.itemsize, PACK)
    return _described(argument) == parameter


class _Guarded:
    """A copy of an array with a margin on either side, aligned to 64 bytes, in the place of the array itself."""

    def __init__(self, array: Array) -> None:
        assert array.flags.c_contiguous or array[0].flags.c_contiguous, "rows may be apart, nothing else"
        self.array = array  # which stays
        low, high = np.lib.array_utils.byte_bounds(array)
        size = high - low
        whole = np.full(size + 2 * GUARD + 64, 0xA5, np.uint8)
        start = -whole.ctypes.data % 64 + GUARD
        self.bytes, self._margins = whole[start : start + size], (whole[:start], whole[start + size :])
        self._memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(low))

    def fill(self) -> None:
        self.bytes[:] = self._memory

    def take(self, kernel: str, writable: bool) -> None:
        """Checks that only the array was written, and that only if it may be; copies it back."""
        for margin in self._margins:
            assert margin.tobytes().count(0xA5) == margin.size, f"{kernel} writes beyond an array"
        if writable:
            self._memory[:] = self.bytes
        else:
            wrote = self._memory.tobytes() != self.bytes.tobytes()
            assert not wrote, f"{kernel} writes to an argument that it takes as const"


class Bound:
    """A launch on NumPy arrays, laid out once, when it is sure that their types are what the kernel takes."""

    def __init__(self, launch: Launch, within: Library | None = None) -> None:
        self._kernel, self._kernels = launch.kernel, within or library(KERNELS[launch.kernel], launch.formula)
        parameters = self._kernels.signature(self._kernel)
        assert len(parameters) == len(launch.arguments), (self._kernel, parameters)
        self._guarded = {}
        self._values = [self._value(*both) for both in zip(parameters, launch.arguments, strict=True)]
        self._shape = (ctypes.c_uint * 6)(*launch.grid, *launch.block)
        self._addresses = (ctypes.c_void_p * len(self._values))(*map(ctypes.addressof, self._values))

    def _value(self, parameter: str, argument):
        plain = parameter.removeprefix("const ")
        argument = argument.array if isinstance(argument, Constant) else argument
        if argument is None:
            assert parameter.endswith("*"), (self._kernel, parameter)
            return ctypes.c_void_p(None)
        assert _fits(self._kernel, argument, plain), (self._kernel, plain, _described(argument))
        if not isinstance(argument, np.ndarray):
            return (ctypes.c_char * argument.dtype.itemsize).from_buffer_copy(argument.tobytes())
        copy, writable = self._guarded.get(argument.ctypes.data) or (_Guarded(argument), False)
        self._guarded[argument.ctypes.data] = copy, writable or plain == parameter
        return ctypes.c_void_p(copy.bytes.ctypes.data)

    def __call__(self, backwards: bool = False) -> None:
        for copy, _ in self._guarded.values():
            copy.fill()
        failure = self._kernels.run(self._kernel, self._shape, int(backwards), self._addresses)
        assert not failure, f"{self._kernel}: {failure}"
        for copy, writable in self._guarded.values():
            copy.take(self._kernel, writable)


def run(launch: Launch, backwards: bool = False, within: Library | None = None) -> None:
    Bound(launch, within)(backwards)


def run_all(launches: Launch | Iterable[Launch], backwards: bool = False) -> None:
    for launch in [launches] if isinstance(launches, Launch) else launches:
        run(launch, backwards)
