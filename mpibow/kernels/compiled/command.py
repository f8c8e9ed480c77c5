"""Commands: runs that are calls of C functions, so that a whole plan is one call that never takes the GIL.

A command is a function's address and four integers. oneDNN's primitives fit as they are: (primitive, stream, number of
arguments, arguments). A function compiled here takes (address of its arguments, 0, their number, 0); arguments are
64-bit words: an array's address, an integer, or the bits of a float64.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Run
from mpibow.kernels.isa import isa

SIGNATURE = types.int32(types.int64, types.int64, types.int64, types.int64)
# Sums may be reordered, so that they run in vector registers; NaN and infinities are kept.
FAST = {"reassoc", "contract", "arcp", "nsz"}


@intrinsic
def _call(typing: Any, function: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """function(a, b, c, d), `function` being an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * 4)
        return builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])

    return SIGNATURE.return_type(*[types.int64] * 5), generate


def _pointer_to(kind: Any) -> Any:
    """An intrinsic that takes an address for a pointer to elements of `kind`."""

    @intrinsic
    def pointer(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], context.get_value_type(types.CPointer(kind)))

        return types.CPointer(kind)(types.int64), generate

    return pointer


_words, _floats, _doubles = _pointer_to(types.int64), _pointer_to(types.float32), _pointer_to(types.float64)
_integers, _octets = _pointer_to(types.int32), _pointer_to(types.uint8)


@intrinsic
def number(typing: Any, word: Any) -> Any:
    """The float64 with the bits of `word`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.DoubleType())

    return types.float64(types.int64), generate


@numba.njit(inline="always")
def words(address: int, count: int) -> Array:
    """int64 (count,) at `address`: a compiled function calls it first, with its first and third argument."""
    return numba.carray(_words(address), (count,))


@numba.njit(inline="always")
def floats(address: int, count: int) -> Array:
    """float32 (count,) at `address`."""
    return numba.carray(_floats(address), (count,))


@numba.njit(inline="always")
def doubles(address: int, count: int) -> Array:
    """float64 (count,) at `address`."""
    return numba.carray(_doubles(address), (count,))


@numba.njit(inline="always")
def integers(address: int, count: int) -> Array:
    """int32 (count,) at `address`; reinterpret as uint32 where needed."""
    return numba.carray(_integers(address), (count,))


@numba.njit(inline="always")
def octets(address: int, count: int) -> Array:
    """uint8 (count,) at `address`."""
    return numba.carray(_octets(address), (count,))


@numba.njit(nogil=True, cache=True)
def _execute(table: Array) -> int:
    """Calls the rows (function, a, b, c, d) in order; returns the number of the first that fails, or -1."""
    for i in range(len(table)):
        row = table[i]
        if _call(row[0], row[1], row[2], row[3], row[4]) != 0:
            return i
    return -1


class Native:
    """A function of SIGNATURE that numba compiles on first use, and keeps on disk."""

    def __init__(self, function: Callable[[int, int, int, int], int], *others: ModuleType, fast: bool = True) -> None:
        # numba's cache goes by name and the function's own file, but compiled code includes functions of other files.
        function.__qualname__ += f"_{helpers(*others):08x}"
        self._function, self._fast = function, fast

    @cached_property
    def address(self) -> int:
        # error_model: a division by 0 is inf or NaN, as NumPy's; Python's test would keep loops scalar.
        fast = FAST if self._fast else False
        compiled = numba.cfunc(SIGNATURE, nopython=True, cache=True, fastmath=fast, error_model="numpy")(self._function)
        self._kept = compiled
        return int(compiled.address)


@cache
def helpers(*others: ModuleType) -> int:
    """A checksum of the instruction set, and of the files whose functions are compiled into others: files beside this
    one, and `others`."""
    folder = Path(__file__).parent
    files = [folder / name for name in ("command.py", "factors.py", "numeric.py", "steps.py", "vectors.py")]
    files += [Path(str(module.__file__)) for module in others]
    return zlib.crc32(b"".join(file.read_bytes() for file in files), zlib.crc32(isa().encode()))


def native(function: Callable[[int, int, int, int], int]) -> Native:
    """Decorates a function (arguments, 0, count, 0) -> 0: `a = words(arguments, count)`, then floats(a[0], n) ..."""
    return Native(function)


def native_stepwise(function: Callable[[int, int, int, int], int]) -> Native:
    """`native`, with sums in the order of the source. Elsewhere numba may reorder even the sums of intrinsics."""
    return Native(function, fast=False)


def native_with(*others: ModuleType) -> Callable[[Callable[[int, int, int, int], int]], Native]:
    """`native` for functions that include code of modules in other folders than this one's."""
    return lambda function: Native(function, *others)


@native
def _ignore(arguments: int, _: int, count: int, __: int) -> int:
    """Calls function(a) for (function, a), whatever it returns."""
    a = words(arguments, count)
    _call(a[0], a[1], 0, 0, 0)
    return 0


@cache
def call_address(address: int, argument: int) -> tuple[int, int, int, int, int]:
    """A row that calls the C function at `address` with one integer; the return value is ignored."""
    block = np.array([address, argument], np.int64)
    _KEPT.append(block)
    return (_ignore.address, block.ctypes.data, 0, 2, 0)


_KEPT: list[Array] = []  # the argument blocks of rows that live as long as the process


class Command:
    """A run: rows (function, a, b, c, d), and the objects that they point to."""

    def __init__(self, rows: Sequence[Sequence[int]] | Array, *kept: Any) -> None:
        self.table = np.array(rows, np.int64).reshape(-1, 5)
        self._kept = kept

    def __call__(self) -> None:
        failed = _execute(self.table)
        if failed >= 0:
            raise RuntimeError(f"command {failed} of {len(self.table)} failed")


def command(function: Native, *arguments: Array | int | float) -> Command:
    """The call of a compiled function: arrays go by address, floats as float64."""
    block = np.array([_word(argument) for argument in arguments], np.int64)
    return Command([(function.address, block.ctypes.data, 0, len(block), 0)], block, arguments)


def _word(argument: Array | int | float) -> int:
    if isinstance(argument, np.ndarray):
        return int(argument.ctypes.data)
    if isinstance(argument, float):
        return int(struct.unpack("q", struct.pack("d", argument))[0])
    return int(argument)


def together(commands: Sequence[Command]) -> Command:
    """One command of several."""
    return Command(np.concatenate([each.table for each in commands]), *commands)


def join(runs: Sequence[Run]) -> list[Run]:
    """The same runs, with neighbouring commands joined into one."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if isinstance(run, Command) and isinstance(last, Command):
            joined[-1] = together([last, run])
        else:
            joined.append(run)
    return joined
