"""Commands: runs that are calls of C functions, so that a whole plan is one call that never takes the GIL.

A command is a function's address and four integers. oneDNN's primitives fit as they are: (primitive, stream, number of
arguments, arguments). A kernel compiled here (native.py) takes (address of its arguments, 0, their number, 0).
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial, wraps
from itertools import groupby
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba import types
from numba.core.ccallback import CFunc
from numba.core.types import Type
from numba.extending import intrinsic

from mpibow.graph import Array, Run

from .code_cache import jit

SIGNATURE = types.int32(types.int64, types.int64, types.int64, types.int64)


def instruction(result: Type, *arguments: Type) -> Callable[[Callable[..., Value]], Callable[..., Any]]:
    """Decorates generate(context, builder, *values), which makes code: compiled functions call it with such arguments.

    A function would be compiled again at each of its calls.
    """

    def decorate(generate: Callable[..., Value]) -> Callable[..., Any]:
        @wraps(partial(generate, None))  # numba reads its parameters, a context and the values
        def typed(typing: object, *kinds: Type) -> tuple[object, Callable[..., Value]]:
            return result(*arguments), lambda context, builder, signature, values: generate(context, builder, *values)

        return intrinsic(typed)

    return decorate


@instruction(types.int32, *[types.int64] * 5)
def call(context: object, builder: IRBuilder, function: Value, a: Value, b: Value, c: Value, d: Value) -> Value:
    """function(a, b, c, d), `function` being an address."""
    kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * 4)
    return builder.call(builder.inttoptr(function, kind.as_pointer()), [a, b, c, d])


@instruction(types.boolean, *[types.int64] * 3)
def swapped(context: object, builder: IRBuilder, place: Value, before: Value, after: Value) -> Value:
    """Whether the word at an address was `before`; then it is `after` now. At once, whatever other threads do."""
    word = builder.inttoptr(place, ir.IntType(64).as_pointer())
    return builder.extract_value(builder.cmpxchg(word, before, after, "seq_cst"), 1)


@jit
def execute(table: Array) -> int:
    """Calls the rows (function, a, b, c, d) in order; returns the number of the first that fails, or -1."""
    for i in range(len(table)):
        row = table[i]
        if call(row[0], row[1], row[2], row[3], row[4]) != 0:
            return i
    return -1


class Version:
    """A kernel with fixed values of its Literal arguments; it is compiled, or read from disk, on first use."""

    def __init__(self, compiled: Callable[[], CFunc]):
        self._compiled = compiled

    @cached_property
    def code(self) -> CFunc:
        return self._compiled()

    @property
    def address(self) -> int:
        return int(self.code.address or 0)


Row = tuple[int | Version, int, int, int, int]  # (function, a, b, c, d)


class Command:
    """A run: rows (function, a, b, c, d), and the objects that they point to. A function is an address, or what has
    one once the first call, or `join`, compiles it."""

    def __init__(self, rows: Sequence[Row] | Array, *kept: object):
        self.rows = rows
        self.kept = kept

    @cached_property
    def place(self) -> tuple[int, int]:
        """The address of its table, and the number of rows."""
        return self.table.ctypes.data, len(self.table)

    @cached_property
    def table(self) -> Array:
        rows = [(f.address if isinstance(f, Version) else f, *numbers) for f, *numbers in self.rows]
        return np.array(rows, np.int64).reshape(-1, 5)

    def __call__(self) -> None:
        failed = execute(self.table)
        if failed >= 0:
            raise RuntimeError(f"command {failed} of {len(self.table)} failed")


def together(commands: Sequence[Command]) -> Command:
    """One command of several."""
    return Command([row for each in commands for row in each.rows], *commands)


def join(runs: Sequence[Run]) -> list[Run]:
    """The same runs, with neighbouring commands joined into one, and all that they call compiled."""
    joined = list[Run]()
    for _, group in groupby(runs, lambda run: isinstance(run, Command)):
        every = [*group]
        commands = [run for run in every if isinstance(run, Command)]
        joined += [Command(together(commands).table, *commands)] if commands else every
    return joined


def compiling(runs: Sequence[Run]) -> list[Callable[[], object]]:
    """What compiles each of the kernels that these runs call, or loads it from disk."""
    functions = [row[0] for run in runs if isinstance(run, Command) for row in run.rows]
    versions = dict.fromkeys(function for function in functions if isinstance(function, Version))
    return [partial(getattr, version, "address") for version in versions]
