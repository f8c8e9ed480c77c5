"""Commands: runs that are calls of C functions, so that a whole plan is one call that never takes the GIL.

A command is a function's address and four integers. oneDNN's primitives fit as they are: (primitive, stream, number of
arguments, arguments). A kernel compiled here (`native`) takes (address of its arguments, 0, their number, 0); arguments
are 64-bit words, which `Native` packs and unpacks by name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, ParamSpec, get_type_hints

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Run
from mpibow.kernels.compiled.arguments import I64, addresses, array_at, kind_of, packed, unpacked
from mpibow.kernels.compiled.code_cache import c_function, jit
from mpibow.kernels.isa import isa

P = ParamSpec("P")
SIGNATURE = types.int32(types.int64, types.int64, types.int64, types.int64)
# Sums may be reordered, so that they run in vector registers; NaN and infinities are kept.
FAST = {"reassoc", "contract", "arcp", "nsz"}


@intrinsic
def _call(typing: Any, function: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """function(a, b, c, d), `function` being an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [I64] * 4)
        return builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])

    return SIGNATURE.return_type(*[types.int64] * 5), generate


def _view_of(element: Any) -> Any:
    """An intrinsic (address, count) -> array (count,): a function would be compiled again at each of its calls."""
    kind = types.Array(element, 1, "C")

    @intrinsic
    def view(typing: Any, address: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return array_at(context, builder, kind, *values)

        return kind(types.int64, types.int64), generate

    return view


floats, doubles = _view_of(types.float32), _view_of(types.float64)
words, integers, octets = _view_of(types.int64), _view_of(types.int32), _view_of(types.uint8)


@jit
def _execute(table: Array) -> int:
    """Calls the rows (function, a, b, c, d) in order; returns the number of the first that fails, or -1."""
    for i in range(len(table)):
        row = table[i]
        if _call(row[0], row[1], row[2], row[3], row[4]) != 0:
            return i
    return -1


class Native(Generic[P]):
    """A kernel, which numba compiles on first use to a function of SIGNATURE, and keeps on disk; see `native`."""

    def __init__(self, kernel: Callable[P, Any], *others: ModuleType, fast: bool = True) -> None:
        # The cache goes by name and the kernel's own file; compiled code includes functions of other files.
        kernel.__qualname__ += f"_{helpers(*(str(module.__file__) for module in others)):08x}"
        self._kernel, self._fast = kernel, fast
        named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in signature(kernel).parameters.values()]
        self._signature, hints = Signature(named), get_type_hints(kernel, include_extras=True)
        self._kinds = {each.name: kind_of(hints[each.name]) for each in named}
        self._may_fail = hints["return"] is int

    @cached_property
    def address(self) -> int:
        # error_model: a division by 0 is inf or NaN, as NumPy's; Python's test would keep loops scalar.
        fast = FAST if self._fast else False
        self._kept = c_function(self._entry(), SIGNATURE, nopython=True, fastmath=fast, error_model="numpy")
        return int(self._kept.address)

    def _entry(self) -> Any:
        """The function of SIGNATURE, under the kernel's name and file, that the kernel becomes a part of."""
        kernel, names = self._kernel, ", ".join(self._kinds)
        call = f"return _kernel({names})" if self._may_fail else f"_kernel({names}); return 0"
        text = f"def entry(arguments, _, count, __): {names}, = _unpack(arguments); {call}"
        unpack, inlined = unpacked([*self._kinds.values()]), numba.njit(inline="always")(kernel)
        scope = {"__name__": kernel.__module__, "_unpack": unpack, "_kernel": inlined}
        exec(compile(text, kernel.__code__.co_filename, "exec"), scope)
        entry: Any = scope["entry"]
        entry.__qualname__ = kernel.__qualname__
        return entry

    def command(self, *positional: P.args, **named: P.kwargs) -> Command:
        """The call of the kernel with these arguments, by name. Raises TypeError where one is not of its type."""
        words, kept, at = list[int](), list[Any](), ""
        try:
            arguments = self._signature.bind(*positional, **named)
            arguments.apply_defaults()
            for name, value in arguments.arguments.items():
                at = f"{name} "
                if isinstance(value, list | tuple):
                    kept.append(value := addresses(value))
                if value is None and self._signature.parameters[name].default is not None:
                    raise TypeError("must not be None")
                words += packed(self._kinds[name], value)
        except TypeError as error:
            raise TypeError(f"{self._kernel.__name__}: {at}{error}") from None
        block = np.array(words, np.int64)
        return Command([(self.address, block.ctypes.data, 0, len(block), 0)], block, arguments, kept)


@cache
def helpers(*others: str) -> int:
    """A checksum of the instruction set, and of the files whose functions are compiled into others: files beside this
    one, and `others`."""
    names = ("arguments.py", "command.py", "factors.py", "numeric.py", "steps.py", "vectors.py")
    files = [*map(Path(__file__).with_name, names), *map(Path, others)]
    return zlib.crc32(b"".join(file.read_bytes() for file in files), zlib.crc32(isa().encode()))


def native(kernel: Callable[P, Any]) -> Native[P]:
    """Decorates a kernel, a function of named arguments:

        @native
        def scale(x: Floats, y: Floats, factor: Single) -> None:
            for i in range(len(x)):
                y[i] = factor * x[i]

        scale.command(x=x, y=y, factor=0.5)()

    An argument is an int, a bool, a float, a Single (float32 in the kernel), an array of any shape, whose numbers the
    kernel has in one row (Floats, Doubles, Words, Integers, Octets), or an Address, of any array, an int in the kernel.
    Words are also given as a list of arrays, whose addresses the kernel has. With `= None` an Address (0 then) or an
    array (empty) may be left out. `command` checks the arguments, a call of it checks nothing. A kernel that is
    declared to return an int fails if this is not 0.
    """
    return Native(kernel)


def native_stepwise(kernel: Callable[P, Any]) -> Native[P]:
    """`native`, with sums in the order of the source. Elsewhere numba may reorder even the sums of intrinsics."""
    return Native(kernel, fast=False)


def native_with(*others: ModuleType) -> Callable[[Callable[P, Any]], Native[P]]:
    """`native` for kernels that include code of modules in other folders than this one's."""
    return lambda kernel: Native(kernel, *others)


@native
def ignore(function: int, argument: int) -> None:
    """Calls the C function at an address with one integer; the return value is ignored."""
    _call(function, argument, 0, 0, 0)


class Command:
    """A run: rows (function, a, b, c, d), and the objects that they point to."""

    def __init__(self, rows: Sequence[Sequence[int]] | Array, *kept: Any) -> None:
        self.table = np.array(rows, np.int64).reshape(-1, 5)
        self._kept = kept

    def __call__(self) -> None:
        failed = _execute(self.table)
        if failed >= 0:
            raise RuntimeError(f"command {failed} of {len(self.table)} failed")


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
