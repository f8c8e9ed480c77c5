"""Commands: runs that are calls of C functions, so that a whole plan is one call that never takes the GIL.

A command is a function's address and four integers. oneDNN's primitives fit as they are: (primitive, stream, number of
arguments, arguments). A kernel compiled here (`native`) takes (address of its arguments, 0, their number, 0); arguments
are 64-bit words, which `Native` packs and unpacks by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from inspect import Parameter, Signature, signature
from itertools import groupby, product
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, get_args, get_origin, get_type_hints

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.arguments import I64, addresses, array_at, kind_of, packed, unpacked
from mpibow.kernels.compiled.code_cache import c_function, jit

P = ParamSpec("P")
Row: TypeAlias = Sequence[Any]  # (function, a, b, c, d)
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

    def __init__(self, kernel: Callable[P, Any], fast: bool = True) -> None:
        self._kernel, self._fast = kernel, fast
        named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in signature(kernel).parameters.values()]
        self._signature, hints = Signature(named), get_type_hints(kernel, include_extras=True)
        self._kinds = {each.name: kind_of(hints[each.name]) for each in named}
        self._may_fail = hints["return"] is int
        choices = {name: get_args(kind) for name, kind in self._kinds.items() if get_origin(kind) is Literal}
        # One function for each choice of the arguments that are Literal.
        self.versions = {
            values: Version(partial(self._compiled, dict(zip(choices, values, strict=True))))
            for values in product(*choices.values())
        }
        self._chosen = tuple(choices)

    def _compiled(self, fixed: dict[str, Any]) -> Any:
        """The kernel's code, in which these arguments are constants."""
        # error_model: a division by 0 is inf or NaN, as NumPy's; Python's test would keep loops scalar.
        fast = FAST if self._fast else False
        return c_function(self._entry(fixed), SIGNATURE, nopython=True, fastmath=fast, error_model="numpy")

    def _entry(self, fixed: dict[str, Any]) -> Any:
        """The function of SIGNATURE, under the kernel's name and file, that the kernel becomes a part of."""
        kernel, names = self._kernel, [name for name in self._kinds if name not in fixed]
        arguments = ", ".join(str(fixed.get(name, name)) for name in self._kinds)
        call = f"return _kernel({arguments})" if self._may_fail else f"_kernel({arguments}); return 0"
        text = f"def entry(arguments, _, count, __): {', '.join(names)}, = _unpack(arguments); {call}"
        unpack, inlined = unpacked([self._kinds[name] for name in names]), numba.njit(inline="always")(kernel)
        scope = {"__name__": kernel.__module__, "_unpack": unpack, "_kernel": inlined}
        exec(compile(text, kernel.__code__.co_filename, "exec"), scope)
        entry: Any = scope["entry"]
        entry.__qualname__ = "_".join([kernel.__qualname__, *map(str, fixed.values())])
        return entry

    def command(self, *positional: P.args, **named: P.kwargs) -> Command:
        """The call of the kernel with these arguments, by name. Raises TypeError where one is not of its type."""
        return self._command(*positional, **named)

    def on(self, call: Call, **others: Any) -> Command:
        """The same with `others`, and the arrays of a plan's call that have arguments' names (Call.arrays)."""
        arrays = call.arrays
        return self._command(**{name: arrays[name] for name in self._kinds if name in arrays} | others)

    def _command(self, *positional: Any, **named: Any) -> Command:
        words, kept, at = list[int](), list[Any](), ""
        try:
            arguments = self._signature.bind(*positional, **named)
            arguments.apply_defaults()
            chosen = tuple(arguments.arguments.pop(name) for name in self._chosen)
            if (version := self.versions.get(chosen)) is None:
                raise TypeError(f"has no version for {', '.join(self._chosen)} = {', '.join(map(str, chosen))}")
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
        return Command([(version, block.ctypes.data, 0, len(block), 0)], block, arguments, kept)


class Version:
    """A kernel with fixed values of its Literal arguments; it is compiled, or read from disk, on first use."""

    def __init__(self, compiled: Callable[[], Any]) -> None:
        self._compiled = compiled

    @cached_property
    def code(self) -> Any:
        return self._compiled()

    @property
    def address(self) -> int:
        return int(self.code.address)


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
    array (empty) may be left out. A Literal[2, 4] is a constant of the kernel, which is compiled for each value that is
    used. `command` checks the arguments, a call of it checks nothing. A kernel that is declared to return an int fails
    if this is not 0.
    """
    return Native(kernel)


def native_stepwise(kernel: Callable[P, Any]) -> Native[P]:
    """`native`, with sums in the order of the source. Elsewhere numba may reorder even the sums of intrinsics."""
    return Native(kernel, fast=False)


@native
def ignore(function: int, argument: int) -> None:
    """Calls the C function at an address with one integer; the return value is ignored."""
    _call(function, argument, 0, 0, 0)


class Command:
    """A run: rows (function, a, b, c, d), and the objects that they point to. A function is an address, or what has
    one once the first call, or `join`, compiles it."""

    def __init__(self, rows: Sequence[Row] | Array, *kept: Any) -> None:
        self.rows, self._kept = rows, kept

    @cached_property
    def table(self) -> Array:
        rows = [(f.address if isinstance(f, Version) else f, *numbers) for f, *numbers in self.rows]
        return np.array(rows, np.int64).reshape(-1, 5)

    def __call__(self) -> None:
        failed = _execute(self.table)
        if failed >= 0:
            raise RuntimeError(f"command {failed} of {len(self.table)} failed")


def together(commands: Sequence[Any]) -> Command:
    """One command of several."""
    return Command([row for each in commands for row in each.rows], *commands)


def join(runs: Sequence[Run]) -> list[Run]:
    """The same runs, with neighbouring commands joined into one, and all that they call compiled."""
    joined = list[Run]()
    for commands, group in groupby(runs, lambda run: isinstance(run, Command)):
        every = [*group]
        joined += [Command(together(every).table, *every)] if commands else every
    return joined


def compiling(runs: Sequence[Run]) -> list[Callable[[], object]]:
    """What compiles each of the kernels that these runs call, or loads it from disk."""
    functions = [row[0] for run in runs if isinstance(run, Command) for row in run.rows]
    versions = dict.fromkeys(function for function in functions if isinstance(function, Version))
    return [partial(getattr, version, "address") for version in versions]
