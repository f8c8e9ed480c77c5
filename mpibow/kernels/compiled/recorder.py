"""Passes over flat arrays recorded as commands, which a waiting thread executes without Python's lock."""

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.ccallback import CFunc
from numba.core.types import Type

from mpibow.graph import Array, DType

from .code_cache import c_function
from .command import SIGNATURE, Command, Version, together
from .native import Argument, packed, unpacked

ENTRY = """
def entry(arguments, _, count, __):
    try:
        _function(*_unpack(arguments))
    except Exception:  # no memory
        return 1
    return 0
"""
_VERSIONS = dict[tuple[Any, DType], Version]()  # by function, and the type of its first argument


def command(function: Any, *arguments: Argument) -> Command:
    """The call of a function of `jit`. Its arguments' types follow from the first one's: arrays, which are contiguous,
    tuples of them, numbers."""
    key = (function, arguments[0].dtype)
    words = [*map(_words, arguments)]
    if key not in _VERSIONS:
        _VERSIONS[key] = Version(partial(_called, function, [*map(numba.typeof, arguments)]))
    block = np.array([word for each in words for word in each], np.int64)
    return Command(
        [(_VERSIONS[key], block.ctypes.data, 0, len(block), 0)], block, [*accumulate(map(len, words))], [*arguments]
    )


class Recorder:
    """Makes commands of calls of functions of `jit`, as `do` of a worker's passes; they stay until it makes others. A
    pass's last two arguments are its first chunk and the end of its chunks."""

    def __init__(self) -> None:
        self._calls = list[tuple[Any, Array, list[int], list[Argument]]]()
        self._next = 0
        self._command = together(())

    def record(self, work: Callable[..., object], chunks: range) -> Command:
        """The command of a pass on chunks."""
        self._next = 0
        work(chunks, do=self._do)
        if self._next < len(self._calls):
            self._calls.clear()
            return self.record(work, chunks)
        return self._command

    def _do(self, function: Any, *arguments: Argument) -> None:
        n = self._next
        self._next += 1
        if n < len(self._calls) and self._calls[n][0] is function:
            _, block, ends, known = self._calls[n]
            for i, each in enumerate(arguments):
                if each is not known[i]:
                    words = _words(each)
                    block[ends[i] - len(words) : ends[i]] = words
                    known[i] = each
            return
        made = command(function, *arguments)
        self._command = Command([*self._command.rows[:n], *made.rows], self._calls)
        self._calls[n:] = [(function, *made.kept)]


def _called(function: Any, kinds: Sequence[Type]) -> CFunc:
    scope = {"__name__": function.__module__, "_unpack": unpacked(kinds), "_function": function}
    exec(compile(ENTRY, function.py_func.__code__.co_filename, "exec"), scope)
    entry: Any = scope["entry"]
    entry.__qualname__ = f"{function.__name__}_{zlib.crc32(str(kinds).encode())}"
    return c_function(entry, SIGNATURE, nopython=True)


def _words(value: Argument) -> list[int]:
    if isinstance(value, tuple):
        return [word for each in value for word in _words(each)]
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return [value.ctypes.data, *value.shape]
    return packed(types.float64 if isinstance(value, float) else types.int64, value)
