"""Vectors of 16 floats in LLVM's instructions: compiled loops do not keep sums in registers. Addresses are of bytes."""

import math
from collections.abc import Callable, Sequence
from functools import wraps

from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mpibow.kernels.isa import ISA

F32 = ir.FloatType()
F64 = ir.DoubleType()
BYTE = ir.IntType(8)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
VECTOR = ir.VectorType(F32, 16)
ZERO = ir.Constant(VECTOR, None)
LOWEST = ir.Constant(VECTOR, [-math.inf] * 16)
LINE, BLOCK = 64, 16 * 64  # bytes of a vector, and of a block of 16 x 16 floats, line after line
SUMS = 24 if ISA == "AVX-512" else 4  # vectors that stay in registers while products are added to them


def at(builder: IRBuilder, address: Value, offset: int, kind: ir.Type = VECTOR) -> Value:
    return builder.inttoptr(builder.add(address, I64(offset)), kind.as_pointer())


def load(builder: IRBuilder, address: Value, offset: int = 0, kind: ir.Type = VECTOR) -> Value:
    return builder.load(at(builder, address, offset, kind), align=4)


def load_where(builder: IRBuilder, condition: Value, address: Value, offset: int) -> Value:
    """The vector at an address if the condition holds, else 0, without a read."""
    return load_some(builder, splat(builder, condition), address, offset)


def first_lanes(builder: IRBuilder, count: Value) -> Value:
    """The mask of a vector's first `count` lanes."""
    lanes = ir.Constant(ir.VectorType(I32, 16), list(range(16)))
    return builder.icmp_signed("<", lanes, splat(builder, builder.trunc(count, I32)))


def _call(builder: IRBuilder, name: str, result: ir.Type, *arguments: Value) -> Value:
    """LLVM's function of this name."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}"), arguments)


def load_some(builder: IRBuilder, mask: Value, address: Value, offset: int) -> Value:
    """The vector at an address, with 0 in lanes that the mask leaves out, which are not read."""
    return _call(builder, "masked.load.v16f32.p0v16f32", VECTOR, at(builder, address, offset), I32(4), mask, ZERO)


def store_some(builder: IRBuilder, mask: Value, value: Value, address: Value, offset: int) -> None:
    """Writes the lanes of the mask; the others stay as they are."""
    place = at(builder, address, offset)
    _call(builder, "masked.store.v16f32.p0v16f32", ir.VoidType(), value, place, I32(4), mask)


def ask(builder: IRBuilder, address: Value, offset: int = 0, *, write: bool = False) -> None:
    """Prefetches a line, to read it or to write it; it may lie past the end."""
    place = at(builder, address, offset, BYTE)
    _call(builder, "prefetch.p0i8", ir.VoidType(), place, I32(int(write)), I32(3), I32(1))  # all caches; data


def store(builder: IRBuilder, value: Value, address: Value, offset: int = 0) -> None:
    builder.store(value, at(builder, address, offset, value.type), align=4)


def splat(builder: IRBuilder, scalar: Value) -> Value:
    kind = ir.VectorType(scalar.type, 16)
    none = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(none, scalar, I32(0))
    return builder.shuffle_vector(one, none, ir.Constant(ir.VectorType(I32, 16), None))


def scalar_at(builder: IRBuilder, address: Value, offset: int) -> Value:
    """The float at an address, in all lanes."""
    return splat(builder, builder.load(at(builder, address, offset, F32)))


def multiply_add(builder: IRBuilder, x: Value, y: Value, z: Value) -> Value:
    """x y + z, rounded once, wherever it stands."""
    return _call(builder, "fma.v16f32", VECTOR, x, y, z)


def plus_product(builder: IRBuilder, z: Value, x: Value, y: Value) -> Value:
    """z + x y, as one instruction where the processor has it."""
    return builder.fadd(z, builder.fmul(x, y, flags=("contract",)), flags=("contract",))


def registers(builder: IRBuilder, count: int, kind: ir.Type = VECTOR) -> list[Value]:
    """Variables that begin as 0; they become registers."""
    places = [cgutils.alloca_once(builder, kind) for _ in range(count)]
    for place in places:
        builder.store(ir.Constant(kind, None), place)
    return places


def places(builder: IRBuilder, address: Value, step: Value, count: int) -> list[Value]:
    """So many addresses, `step` bytes from each other."""
    return [builder.add(address, builder.mul(step, I64(i))) for i in range(count)]


def parts_of(count: int, most: int) -> list[range]:
    """So many numbers, at most `most` at a time."""
    return [range(at, min(at + most, count)) for at in range(0, count, most)]


def is_set(builder: IRBuilder, value: Value) -> Value:
    """Whether an integer is not 0."""
    return builder.icmp_signed("!=", value, I64(0))


def not_below(builder: IRBuilder, value: Value, least: Value) -> Value:
    """The larger of both; NaN stays."""
    return builder.select(builder.fcmp_ordered("<", value, least), least, value)


def columns_of(builder: IRBuilder, lines: list[Value]) -> list[Value]:
    """The columns of 16 vectors: each bit of a vector's number is exchanged with that of its elements."""
    for bit in (1, 2, 4, 8):
        masks = [
            ir.Constant(ir.VectorType(I32, 16), [j & ~bit | half | (16 if j & bit else 0) for j in range(16)])
            for half in (0, bit)
        ]
        pairs = [(lines[i & ~bit], lines[i | bit]) for i in range(16)]
        lines = [builder.shuffle_vector(*pair, masks[i // bit % 2]) for i, pair in enumerate(pairs)]
    return lines


def transpose_block(builder: IRBuilder, source: Value, target: Value) -> None:
    """target (16, 16) <- source^T."""
    for i, line in enumerate(columns_of(builder, [load(builder, source, i * LINE) for i in range(16)])):
        store(builder, line, target, i * LINE)


def emitted(generate: Callable[..., None]) -> Callable[..., int]:
    """Decorates generate(builder, *values), which makes instructions and has a parameter for each value; a kernel calls
    it with the values, of int64."""

    @wraps(generate)
    def typed(typing: object, *kinds: types.Type) -> tuple[object, Callable[..., Value]]:
        return types.int64(*[types.int64] * len(kinds)), code_of(generate)

    return intrinsic(typed)


def by_constants(count: int) -> Callable[[Callable[..., None]], Callable[..., int]]:
    """`emitted`, whose first `count` values are constants of the kernel, of Literal, and integers for `generate`."""

    def decorate(generate: Callable[..., None]) -> Callable[..., int]:
        @wraps(generate)
        def typed(typing: object, *kinds: types.Type) -> tuple[object, Callable[..., Value]]:
            fixed = [kind.literal_value for kind in kinds[:count]]
            kinds = (*kinds[:count], *[types.int64] * len(kinds[count:]))
            return types.int64(*kinds), code_of(lambda b, *values: generate(b, *fixed, *values[count:]))

        return intrinsic(prefer_literal=True)(typed)

    return decorate


def code_of(generate: Callable[..., None]) -> Callable[..., Value]:
    """The code of an intrinsic, generate(builder, *values); it returns 0."""

    def code(context: object, builder: IRBuilder, signature: object, values: list[Value]) -> Value:
        generate(builder, *values)
        return I64(0)

    return code


def apart(generate: Callable[..., None]) -> Callable[..., None]:
    """`generate`, as a function of its own in LLVM for each of its integers, which come first. Within a larger function
    LLVM computes addresses anew, or keeps sums outside of registers."""

    @wraps(generate)
    def code(b: IRBuilder, *values: Value) -> None:
        fixed = [value for value in values if isinstance(value, int)]
        values = values[len(fixed) :]
        name = ".".join(map(str, (generate.__module__, generate.__name__, *fixed)))
        function = b.module.globals.get(name)
        if function is None:
            function = ir.Function(b.module, ir.FunctionType(ir.VoidType(), [I64] * len(values)), name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            inner = IRBuilder(function.append_basic_block())
            generate(inner, *fixed, *function.args)
            inner.ret_void()
        b.call(function, values)

    return code


def specialised(*choices: Sequence[int]) -> Callable[[Callable[..., None]], Callable[..., int]]:
    """`emitted`, whose first values are constants for `generate`: there is code for each combination of the choices."""

    def decorate(generate: Callable[..., None]) -> Callable[..., int]:
        @wraps(generate)
        def code(b: IRBuilder, *values: Value) -> None:
            def make(*fixed: int) -> None:
                at = len(fixed)
                if at == len(choices):
                    return generate(b, *fixed, *values[at:])
                for each in choices[at]:
                    with b.if_then(b.icmp_signed("==", values[at], I64(each))):
                        make(*fixed, each)

            make()

        return emitted(code)

    return decorate


turn = emitted(transpose_block)
