"""Pickles read without executing anything: lists, dicts, texts, numbers and NumPy arrays of bytes, nothing else.

Python's own unpickler calls any function that the file names. Even without such calls, six bytes can make it use all
memory. This is a loop over the file's instructions, which runs the few that such data need, as Python 2 and 3 write
them (protocols 2 to 5), and refuses all others.
"""

from __future__ import annotations

import math
import pickletools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mpibow.errors import RecordError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Named:
    """An object that a pickle imports by name, under our own name; Python's is never looked up."""

    name: str


@dataclass
class PickledArray:
    """An array as the file describes it, unchecked; `uint8` makes one of it."""

    state: object = None  # (version, shape, dtype, is Fortran's order, data)


@dataclass(frozen=True)
class PickledType:
    """A NumPy dtype."""

    name: object


@dataclass
class _Stack:
    items: list[Any]
    marks: list[int]

    def above_mark(self) -> list[Any]:
        mark = self.marks.pop()
        items, self.items[mark:] = self.items[mark:], []
        return items

    def above(self, count: int) -> list[Any]:
        if count > len(self.items):
            raise IndexError(count)
        items, self.items[-count:] = self.items[-count:], []
        return items


EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
VALUES = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("SHORT_BINSTRING", "BINSTRING", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
KNOWN = {
    **{f"{numpy}.multiarray _reconstruct": Named("array") for numpy in ("numpy.core", "numpy._core")},
    **{f"{numpy}.numeric _frombuffer": Named("buffer") for numpy in ("numpy.core", "numpy._core")},  # protocol 5
    "numpy ndarray": Named("ndarray"),
    "numpy dtype": Named("dtype"),
    "_codecs encode": Named("encode"),  # bytes, in Python 3's protocol 2: (text, "latin1")
}


def read_pickle(data: bytes) -> object:
    """The pickle's contents; Python 2's strings as text, byte by byte; an array as a `PickledArray`.

    Raises RecordError where it is none, not whole, or contains anything but data.
    """
    stack, memo = _Stack([], []), dict[int, Any]()
    place: int | None = 0
    try:
        with warnings.catch_warnings(action="ignore"):  # about escapes in a damaged text
            for opcode, argument, place in pickletools.genops(data):  # noqa: B007
                if opcode.name == "STOP":
                    return stack.items.pop()
                _step(opcode.name, argument, stack, memo)
    except (ValueError, LookupError) as error:
        what = "a value is missing" if isinstance(error, LookupError) else str(error).lower()
        raise RecordError(f"is not a pickle, or is damaged, by byte {place}: {what}") from error
    raise RecordError("is not a pickle, or is damaged: it has no end")


def uint8(array: object, shape: tuple[int, ...]) -> Array:
    """The array (n, *shape) of bytes that the file describes. Raises RecordError where it is anything else."""
    match array:
        case PickledArray((_, (int() as count, *rest), PickledType("u1" | "|u1" | "uint8"), False, values)) if (
            tuple(rest) == shape
        ):
            data = values.encode("latin-1", "ignore") if isinstance(values, str) else values
            if isinstance(data, bytes | bytearray) and len(data) == count * math.prod(shape):
                return np.frombuffer(data, np.uint8).reshape(-1, *shape)
    raise RecordError(f"is not an array of unsigned bytes in C order, of shape (n, {', '.join(map(str, shape))})")


def _step(name: str, argument: Any, stack: _Stack, memo: dict[int, Any]) -> None:
    items = stack.items
    match name:
        case _ if name in VALUES:
            items.append(argument)
        case "BINPUT" | "LONG_BINPUT":
            memo[argument] = items[-1]
        case "MEMOIZE":
            memo[len(memo)] = items[-1]
        case "BINGET" | "LONG_BINGET":
            items.append(memo[argument])
        case "MARK":
            stack.marks.append(len(items))
        case _ if name in EMPTY:
            items.append(EMPTY[name]())
        case _ if name in CONSTANTS:
            items.append(CONSTANTS[name])
        case _ if name in TUPLES:
            items.append(tuple(stack.above(TUPLES[name])))
        case "TUPLE":
            items.append(tuple(stack.above_mark()))
        case "APPENDS" | "APPEND":
            added = stack.above_mark() if name == "APPENDS" else stack.above(1)
            _expect(items[-1], list).extend(added)
        case "SETITEMS" | "SETITEM":
            added = stack.above_mark() if name == "SETITEMS" else stack.above(2)
            if len(added) % 2 or not all(isinstance(key, str | bytes | int) for key in added[::2]):
                raise ValueError("a dict's keys and values are expected")
            keys = (key.decode("latin-1") if isinstance(key, bytes) else key for key in added[::2])
            _expect(items[-1], dict).update(zip(keys, added[1::2], strict=True))
        case "GLOBAL":
            items.append(_named(argument))
        case "STACK_GLOBAL":
            items.append(_named(" ".join(map(str, stack.above(2)))))
        case "REDUCE":
            function, arguments = stack.above(2)
            items.append(_called(function, arguments))
        case "BUILD":
            (state,) = stack.above(1)
            if isinstance(items[-1], PickledArray):
                items[-1].state = state
            elif not isinstance(items[-1], PickledType):  # whose state is of no use for a type of one byte
                raise ValueError("an array or its type is expected")
        case "PROTO" | "FRAME":
            pass
        case _:
            raise RecordError(f"uses the pickle instruction {name}, which data have no need of; it may be malicious")


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a {kind.__name__} is expected, not a {type(value).__name__}")
    return value


def _named(name: str) -> Named:
    if name not in KNOWN:
        raise RecordError(f"asks for {name.replace(' ', '.')}, which data have no need of; it may be malicious")
    return KNOWN[name]


def _called(function: object, arguments: object) -> object:
    match function, arguments:
        case Named("array"), (Named("ndarray"), (0,), _):
            return PickledArray()
        case Named("buffer"), (values, dtype, shape, order):
            return PickledArray((1, shape, dtype, order != "C", values))
        case Named("dtype"), (name, *_):
            return PickledType(name.decode("latin-1") if isinstance(name, bytes) else name)
        case Named("encode"), (str() as text, "latin1"):
            return text
    raise ValueError("a call that no array makes")
