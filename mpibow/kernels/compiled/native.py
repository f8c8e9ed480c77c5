"""Kernels that numba compiles (`native`): their arguments, packed into 64-bit words by name, and views of memory."""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from itertools import count, product
from operator import index
from typing import Annotated, Any, Generic, Literal, ParamSpec, get_args, get_origin, get_type_hints

import numba
import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba import types
from numba.core.base import BaseContext
from numba.core.ccallback import CFunc
from numba.core.types import Type
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import as_dtype

from mpibow.graph import Array, Call, DType

from .code_cache import c_function
from .command import SIGNATURE, Command, Version, instruction

P = ParamSpec("P")
I64 = ir.IntType(64)
# Sums may be reordered, so that they run in vector registers; NaN and infinities are kept.
FAST = {"reassoc", "contract", "arcp", "nsz"}

# The types beside int, float and bool; each holds numba's.
Argument = Any  # an array, several, None or a number where a kernel is called; in the kernel, as below
Arguments = dict[str, Any]  # by name
Address = Annotated[Argument, types.voidptr]  # of an array, to calculate with: an int in the kernel
Single = Annotated[float, types.float32]
Floats = Annotated[Argument, types.float32[::1]]
Doubles = Annotated[Argument, types.float64[::1]]
Words = Annotated[Argument, types.int64[::1]]
Integers = Annotated[Argument, types.int32[::1]]
Octets = Annotated[Argument, types.uint8[::1]]
Indices = Annotated[Argument, types.UniTuple(types.int64, 2)]  # an array of int32 or int64, for numeric.index_at
Back = Literal[False, True]  # whether a kernel, compiled for either, goes backward
# numba's types of arguments with these annotations; others name theirs.
_PLAIN = {int: types.int64, float: types.float64, bool: types.boolean}


def _array_at(context: BaseContext, builder: IRBuilder, kind: types.Array, address: Value, *shape: Value) -> Value:
    """The contiguous array of numba's type `kind` at an address."""
    array = make_array(kind)(context, builder)
    item = I64(kind.dtype.bitwidth // 8)
    data = builder.inttoptr(address, array.data.type)
    strides = [item]
    for size in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], size))
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
    return array._getvalue()


def _view_of(element: Type) -> Callable[[int, int], Array]:
    """(address, count) -> array (count,)."""
    kind = types.Array(element, 1, "C")

    @instruction(kind, types.int64, types.int64)
    def view(context: BaseContext, builder: IRBuilder, address: Value, count: Value) -> Value:
        return _array_at(context, builder, kind, address, count)

    return view


floats = _view_of(types.float32)
doubles = _view_of(types.float64)
words = _view_of(types.int64)
integers = _view_of(types.int32)
octets = _view_of(types.uint8)


@instruction(types.float32[::1], types.int64, types.int64, types.int64)
def row_at(context: BaseContext, builder: IRBuilder, address: Value, i: Value, n: Value) -> Value:
    """Row number i of floats (..., n) at an address."""
    place = builder.add(address, builder.mul(builder.mul(I64(4), i), n))
    return _array_at(context, builder, types.float32[::1], place, n)


class Native(Generic[P]):
    """A kernel, which numba compiles on first use to a function of SIGNATURE, and keeps on disk; see `native`."""

    def __init__(self, kernel: Callable[P, object], fast: bool = True):
        self._kernel = kernel
        self._fast = fast
        named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in signature(kernel).parameters.values()]
        self._signature = Signature(named)
        hints = get_type_hints(kernel, include_extras=True)
        self._may_fail = hints["return"] is int
        choices = {each.name: get_args(hints[each.name]) for each in named if get_origin(hints[each.name]) is Literal}
        kinds = {each.name: hints[each.name] for each in named if each.name not in choices}
        self._kinds = {name: _PLAIN.get(hint) or get_args(hint)[1] for name, hint in kinds.items()}
        # One function for each choice of the arguments that are Literal.
        self.versions = {
            values: Version(partial(self._compiled, dict(zip(choices, values, strict=True))))
            for values in product(*choices.values())
        }
        self._chosen = tuple(choices)

    def _compiled(self, fixed: dict[str, int]) -> CFunc:
        """The kernel's code, in which these arguments are constants."""
        # error_model: a division by 0 is inf or NaN, as NumPy's; Python's test would keep loops scalar.
        fast = FAST if self._fast else False
        return c_function(self._entry(fixed), SIGNATURE, nopython=True, fastmath=fast, error_model="numpy")

    def _entry(self, fixed: dict[str, int]) -> Callable[..., int]:
        """The function of SIGNATURE, under the kernel's name and file, that the kernel becomes a part of."""
        kernel = self._kernel
        names = [*self._kinds]
        arguments = ", ".join(str(fixed.get(name, name)) for name in self._signature.parameters)
        call = f"return _kernel({arguments})" if self._may_fail else f"_kernel({arguments}); return 0"
        text = f"def entry(arguments, _, count, __): {', '.join(names)}, = _unpack(arguments); {call}"
        unpack = unpacked([*self._kinds.values()])
        inlined = numba.njit(inline="always")(kernel)
        scope: dict[str, Any] = {"__name__": kernel.__module__, "_unpack": unpack, "_kernel": inlined}
        exec(compile(text, kernel.__code__.co_filename, "exec"), scope)
        entry = scope["entry"]
        entry.__qualname__ = "_".join([kernel.__qualname__, *map(str, fixed.values())])
        return entry

    def command(self, *positional: P.args, **named: P.kwargs) -> Command:
        """The call of the kernel with these arguments, by name. Raises TypeError where one is not of its type."""
        return self._command(*positional, **named)

    def on(self, call: Call, **others: Argument) -> Command:
        """The same with `others`, and what a plan's call has by arguments' names: the operator's settings, arrays
        (Call.arrays)."""
        known = call.named
        return self._command(**{name: known[name] for name in self._signature.parameters if name in known} | others)

    def half(self, others: Callable[[Call], Mapping[str, Argument]] = lambda call: {}) -> Callable[[Call], Command]:
        """One half of an operator's kernel: `on` each call, with the `others` that depend on it."""
        return lambda call: self.on(call, **others(call))

    def _command(self, *positional: Argument, **named: Argument) -> Command:
        words = list[int]()
        kept = list[Array]()
        at = ""
        try:
            arguments = self._signature.bind(*positional, **named)
            arguments.apply_defaults()
            chosen = tuple(arguments.arguments.pop(name) for name in self._chosen)
            if (version := self.versions.get(chosen)) is None:
                raise TypeError(f"has no version for {', '.join(self._chosen)} = {', '.join(map(str, chosen))}")
            for name, value in arguments.arguments.items():
                at = f"{name} "
                if isinstance(value, list | tuple):
                    kept.append(value := _addresses(value))
                if value is None and self._signature.parameters[name].default is not None:
                    raise TypeError("must not be None")
                words += packed(self._kinds[name], value)
        except TypeError as error:
            raise TypeError(f"{self._kernel.__name__}: {at}{error}") from None
        block = np.array(words, np.int64)
        return Command([(version, block.ctypes.data, 0, len(block), 0)], block, arguments, kept)


def _addresses(arrays: Sequence[Array | None]) -> Array:
    """int64 (n,): an address for each array, 0 for None."""
    return np.array([0 if array is None else array.ctypes.data for array in arrays], np.int64)


def packed(kind: Type, value: Argument) -> list[int]:
    """An argument as words: address and length of an array, else one. Raises TypeError if it is of another kind."""
    if isinstance(kind, types.Array):
        if value is None:
            return [0, 0]
        dtype = as_dtype(kind.dtype)
        if not isinstance(value, np.ndarray) or _like(value.dtype) != _like(dtype):
            raise TypeError(f"must be an array of {dtype}, got {getattr(value, 'dtype', value)}")
        if not value.flags.c_contiguous:
            raise TypeError(f"must be contiguous, got strides {value.strides} of shape {value.shape}")
        return [value.ctypes.data, value.size]
    if isinstance(kind, types.UniTuple):
        if not are_indices(value):
            raise TypeError(f"must be an array of int32 or int64, got {getattr(value, 'dtype', value)}")
        return [value.ctypes.data, value.dtype == np.int64]
    if kind is types.voidptr:
        return [value.ctypes.data if isinstance(value, np.ndarray) else index(value or 0)]
    # The word with the bits of a float64.
    return [int(struct.unpack("q", struct.pack("d", value))[0]) if isinstance(kind, types.Float) else index(value)]


def are_indices(value: Argument) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in (np.int32, np.int64)


def _like(dtype: DType) -> tuple[int, bool]:
    """Its bytes, and whether it has floats: integers with and without a sign pass for each other."""
    return dtype.itemsize, dtype.kind == "f"


def unpacked(kinds: Sequence[Type]) -> Callable[[int], tuple[Argument, ...]]:
    """(address of words) -> arguments of these kinds."""
    arguments = types.BaseTuple.from_types([types.int64 if kind is types.voidptr else kind for kind in kinds])

    @instruction(arguments, types.int64)
    def unpack(context: BaseContext, builder: IRBuilder, address: Value) -> Value:
        block = builder.inttoptr(address, I64.as_pointer())
        places = count()

        def word() -> Value:
            return builder.load(builder.gep(block, [I64(next(places))]))

        def argument(kind: Type) -> Value:
            if isinstance(kind, types.Array):
                return _array_at(context, builder, kind, word(), *(word() for _ in range(kind.ndim)))
            if isinstance(kind, types.BaseTuple):
                return context.make_tuple(builder, kind, [argument(each) for each in kind])
            if isinstance(kind, types.Float):
                double = builder.bitcast(word(), ir.DoubleType())
                return double if kind is types.float64 else builder.fptrunc(double, ir.FloatType())
            return builder.icmp_signed("!=", word(), I64(0)) if kind is types.boolean else word()

        return context.make_tuple(builder, arguments, [argument(kind) for kind in kinds])

    return unpack


def native(kernel: Callable[P, object]) -> Native[P]:
    """Decorates a kernel, a function of named arguments:

        @native
        def scale(x: Floats, y: Floats, factor: Single) -> None:
            for i in range(len(x)):
                y[i] = factor * x[i]

        scale.command(x=x, y=y, factor=0.5)()

    An argument is an int, a bool, a float, a Single (float32 in the kernel), an array of any shape, whose numbers the
    kernel has in one row (Floats, Doubles, Words, Integers, Octets), an Address, of any array, an int in the kernel, or
    Indices.
    Words are also given as a list of arrays, whose addresses the kernel has. With `= None` an Address (0 then) or an
    array (empty) may be left out. A Literal[2, 4] is a constant of the kernel, which is compiled for each value that is
    used. `command` checks the arguments, a call of it checks nothing. A kernel that is declared to return an int fails
    if this is not 0.
    """
    return Native(kernel)


def native_stepwise(kernel: Callable[P, object]) -> Native[P]:
    """`native`, with sums in the order of the source. Elsewhere numba may reorder even the sums of intrinsics."""
    return Native(kernel, fast=False)
