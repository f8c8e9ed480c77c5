"""Arguments of compiled kernels: their types, and how they are packed into 64-bit words and unpacked."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import count
from operator import index
from typing import Annotated, Any, Literal, get_origin

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import as_dtype

I64 = ir.IntType(64)

# The types beside int, float and bool; each holds numba's.
Address = Annotated[Any, types.voidptr]  # of an array, to calculate with: an int in the kernel
Single = Annotated[float, types.float32]
Floats = Annotated[Any, types.float32[::1]]
Doubles = Annotated[Any, types.float64[::1]]
Words = Annotated[Any, types.int64[::1]]
Integers = Annotated[Any, types.int32[::1]]
Octets = Annotated[Any, types.uint8[::1]]
_PLAIN = {int: types.int64, float: types.float64, bool: types.boolean}


def kind_of(hint: Any) -> Any:
    """numba's type of an argument with this annotation; a Literal is its own."""
    return _PLAIN[hint] if hint in _PLAIN else hint if get_origin(hint) is Literal else hint.__metadata__[0]


def addresses(arrays: Sequence[Any]) -> Any:
    """int64 (n,): an address for each array, 0 for None."""
    return np.array([0 if array is None else array.ctypes.data for array in arrays], np.int64)


def packed(kind: Any, value: Any) -> list[int]:
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
    if kind is types.voidptr:
        return [value.ctypes.data if isinstance(value, np.ndarray) else index(value or 0)]
    return [bits(value) if isinstance(kind, types.Float) else index(value)]


def _like(dtype: np.dtype[Any]) -> tuple[int, bool]:
    """Its bytes, and whether it has floats: integers with and without a sign pass for each other."""
    return dtype.itemsize, dtype.kind == "f"


def bits(number: float) -> int:
    """The word with the bits of a float64."""
    return int(struct.unpack("q", struct.pack("d", number))[0])


def unpacked(kinds: Sequence[Any]) -> Any:
    """An intrinsic (address of words) -> arguments of these kinds."""
    arguments = types.BaseTuple.from_types([types.int64 if kind is types.voidptr else kind for kind in kinds])

    @intrinsic
    def unpack(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            words, places = builder.inttoptr(values[0], I64.as_pointer()), count()

            def word() -> Any:
                return builder.load(builder.gep(words, [I64(next(places))]))

            def argument(kind: Any) -> Any:
                if isinstance(kind, types.Array):
                    return array_at(context, builder, kind, word(), word())
                if isinstance(kind, types.Float):
                    double = builder.bitcast(word(), ir.DoubleType())
                    return double if kind is types.float64 else builder.fptrunc(double, ir.FloatType())
                return builder.icmp_signed("!=", word(), I64(0)) if kind is types.boolean else word()

            return context.make_tuple(builder, signature.return_type, [argument(kind) for kind in kinds])

        return arguments(types.int64), generate

    return unpack


def array_at(context: Any, builder: Any, kind: Any, address: Any, size: Any) -> Any:
    """The array (size,) of numba's type `kind` at an address."""
    array, item = make_array(kind)(context, builder), I64(kind.dtype.bitwidth // 8)
    data = builder.inttoptr(address, array.data.type)
    populate_array(array, data=data, shape=[size], strides=[item], itemsize=item, meminfo=None)
    return array._getvalue()
