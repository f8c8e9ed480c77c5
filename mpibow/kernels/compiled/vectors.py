"""Vectors of 16 floats in LLVM's instructions: compiled loops do not keep sums in registers. Addresses are of bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

F32, F64 = ir.FloatType(), ir.DoubleType()
BYTE, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
VECTOR, MASK = ir.VectorType(F32, 16), ir.VectorType(ir.IntType(1), 16)
ZERO = ir.Constant(VECTOR, None)
LINE = 64  # bytes of a vector


def at(builder: Any, address: Any, offset: int, kind: Any = VECTOR) -> Any:
    return builder.inttoptr(builder.add(address, I64(offset)), kind.as_pointer())


def load(builder: Any, address: Any, offset: int = 0, kind: Any = VECTOR) -> Any:
    return builder.load(at(builder, address, offset, kind), align=4)


def load_where(builder: Any, condition: Any, address: Any, offset: int) -> Any:
    """The vector at an address if the condition holds, else 0, without a read."""
    return load_some(builder, splat(builder, condition), address, offset)


def first_lanes(builder: Any, count: Any) -> Any:
    """The mask of a vector's first `count` lanes."""
    lanes = ir.Constant(ir.VectorType(I32, 16), list(range(16)))
    return builder.icmp_signed("<", lanes, splat(builder, builder.trunc(count, I32)))


def load_some(builder: Any, mask: Any, address: Any, offset: int) -> Any:
    """The vector at an address, with 0 in lanes that the mask leaves out, which are not read."""
    kind = ir.FunctionType(VECTOR, [VECTOR.as_pointer(), I32, MASK, VECTOR])
    masked = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.load.v16f32.p0v16f32")
    return builder.call(masked, [at(builder, address, offset), I32(4), mask, ZERO])


def store_some(builder: Any, mask: Any, value: Any, address: Any, offset: int) -> None:
    """Writes the lanes of the mask; the others stay as they are."""
    kind = ir.FunctionType(ir.VoidType(), [VECTOR, VECTOR.as_pointer(), I32, MASK])
    masked = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.store.v16f32.p0v16f32")
    builder.call(masked, [value, at(builder, address, offset), I32(4), mask])


def ask(builder: Any, address: Any, offset: int = 0, *, write: bool = False) -> None:
    """Prefetches a line, to read it or to write it; it may lie past the end."""
    kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), I32, I32, I32])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(prefetch, [at(builder, address, offset, BYTE), I32(int(write)), I32(3), I32(1)])  # all caches; data


def store(builder: Any, value: Any, address: Any, offset: int = 0) -> None:
    builder.store(value, at(builder, address, offset, value.type), align=4)


def splat(builder: Any, scalar: Any) -> Any:
    kind = ir.VectorType(scalar.type, 16)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, 16), None))


def multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z, rounded once, wherever it stands."""
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32"), [x, y, z])


def columns_of(builder: Any, lines: list[Any]) -> list[Any]:
    """The columns of 16 vectors: lines i and i + 8 are interleaved four times, which rotates the bits of an index."""
    first, second = (
        ir.Constant(ir.VectorType(I32, 16), [half * 8 + i // 2 + i % 2 * 16 for i in range(16)]) for half in (0, 1)
    )
    for _ in range(4):
        pairs = zip(lines[:8], lines[8:], strict=True)
        lines = [builder.shuffle_vector(*pair, half) for pair in pairs for half in (first, second)]
    return lines


def emitted(generate: Callable[..., None]) -> Any:
    """Decorates generate(builder, *values), which makes instructions and has a parameter for each value; a kernel calls
    it with the values, of int64."""

    @wraps(generate)
    def typed(typing: Any, *kinds: Any) -> Any:
        return emit(len(kinds), generate)

    return intrinsic(typed)


def emit(count: int, generate: Any) -> Any:
    """An intrinsic of `count` int64 whose code generate(builder, *values) makes; it returns 0."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        generate(builder, *values)
        return I64(0)

    return types.int64(*[types.int64] * count), code
