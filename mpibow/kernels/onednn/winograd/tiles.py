"""What Winograd's loops are made of, in LLVM's own terms: compiled loops do not keep sums in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I64, _F32 = ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_F32, 16)
LINE = 64  # bytes of 16 channels
BLOCK = 16 * LINE  # bytes of 16 lines: of weights one tap of 16 x 16 channels, of V and D one row of a group


def _at(builder: Any, address: Any, offset: int, kind: Any = _VECTOR) -> Any:
    return builder.inttoptr(builder.add(address, _I64(offset)), kind.as_pointer())


def _load(builder: Any, address: Any, offset: int) -> Any:
    return builder.load(_at(builder, address, offset), align=4)


def _store(builder: Any, value: Any, address: Any, offset: int) -> None:
    builder.store(value, _at(builder, address, offset), align=4)


def _splat(builder: Any, scalar: Any) -> Any:
    kind = ir.VectorType(scalar.type, 16)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(
        one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), 16), None)
    )


def _add_product(b: Any, total: Any, scalar: Any, line: Any) -> None:
    """total += scalar line, as one instruction."""
    product = b.fmul(_splat(b, scalar), line, flags=("contract",))
    b.store(b.fadd(b.load(total), product, flags=("contract",)), total)


def _into(b: Any, d: Any) -> Any:
    """B^T d."""
    return [b.fsub(d[0], d[2]), b.fadd(d[1], d[2]), b.fsub(d[2], d[1]), b.fsub(d[3], d[1])]


def _out(b: Any, m: Any) -> Any:
    """A^T m."""
    return [b.fadd(b.fadd(m[0], m[1]), m[2]), b.fadd(b.fsub(m[1], m[2]), m[3])]


def _emit(count: int, generate: Any) -> Any:
    """An intrinsic of `count` int64 that returns 0."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        generate(context, builder, *values)
        return _I64(0)

    return types.int64(*[types.int64] * count), code


@intrinsic
def input_tiles(
    typing: Any, x: Any, v: Any, pitch: Any, step: Any, top: Any, bottom: Any, left: Any, right: Any
) -> Any:
    """v[row][tile][column] = B^T d B of the group whose upper left input is at x; bytes from row to row: pitch in x,
    step in v. Where top ... right is 0 there is padding on that side."""

    def generate(context: Any, b: Any, x: Any, v: Any, pitch: Any, step: Any, *edges: Any) -> None:
        top, bottom, left, right = (b.icmp_signed("!=", edge, _I64(0)) for edge in edges)
        masked = cgutils.get_or_insert_function(
            b.module,
            ir.FunctionType(_VECTOR, [_VECTOR.as_pointer(), ir.IntType(32), ir.VectorType(ir.IntType(1), 16), _VECTOR]),
            "llvm.masked.load.v16f32.p0v16f32",
        )
        rows = [b.add(x, b.mul(pitch, _I64(r))) for r in range(4)]
        steps = [b.add(v, b.mul(step, _I64(r))) for r in range(4)]

        def load(r: int, s: int) -> Any:
            inside = [edge for edge, here in ((top, r == 0), (bottom, r == 3), (left, s == 0), (right, s == 9)) if here]
            if not inside:
                return _load(b, rows[r], s * LINE)
            mask = inside[0] if len(inside) == 1 else b.and_(*inside)
            return b.call(
                masked,
                [_at(b, rows[r], s * LINE), ir.IntType(32)(4), _splat(b, mask), ir.Constant(_VECTOR, None)],
            )

        columns = [_into(b, [load(r, s) for r in range(4)]) for s in range(2)]
        for t in range(4):
            columns += [_into(b, [load(r, s) for r in range(4)]) for s in (2 * t + 2, 2 * t + 3)]
            for r in range(4):
                for j, value in enumerate(_into(b, [columns[2 * t + s][r] for s in range(4)])):
                    _store(b, value, steps[r], (4 * t + j) * LINE)

    return _emit(8, generate)


@intrinsic
def products(typing: Any, v: Any, u: Any, m: Any, blocks: Any) -> Any:
    """m[tile][2] of one row: the sum over C of v[tile][column] u[column], A^T applied to the columns."""

    def generate(context: Any, b: Any, v: Any, u: Any, m: Any, blocks: Any) -> None:
        sums = [cgutils.alloca_once(b, _VECTOR) for _ in range(16)]  # by tile and column; they become registers
        for each in sums:
            b.store(ir.Constant(_VECTOR, None), each)
        with cgutils.for_range(b, blocks) as loop:
            here = b.add(v, b.mul(loop.index, _I64(BLOCK)))
            there = b.add(u, b.mul(loop.index, _I64(4 * BLOCK)))
            for c in range(16):
                weights = [_load(b, there, (4 * c + j) * LINE) for j in range(4)]
                for i, each in enumerate(sums):
                    _add_product(b, each, b.load(_at(b, here, i * LINE + 4 * c, _F32)), weights[i % 4])
        for t in range(4):
            for s, value in enumerate(_out(b, [b.load(each) for each in sums[4 * t : 4 * t + 4]])):
                _store(b, value, m, (2 * t + s) * LINE)

    return _emit(4, generate)


@intrinsic
def output_tiles(typing: Any, m: Any, y: Any, pitch: Any) -> Any:
    """The group's 2x8 outputs at y of m[row][tile][2]."""

    def generate(context: Any, b: Any, m: Any, y: Any, pitch: Any) -> None:
        below = b.add(y, pitch)
        for s in range(8):
            upper, lower = _out(b, [_load(b, m, (8 * r + s) * LINE) for r in range(4)])
            _store(b, upper, y, s * LINE)
            _store(b, lower, below, s * LINE)

    return _emit(3, generate)


@intrinsic
def weight_tiles(typing: Any, g: Any, u: Any, step: Any, tap: Any) -> Any:
    """u[row][column] of the 3x3 taps at g, g + tap, ...: G g G^T; step: bytes from row to row in u."""

    def generate(context: Any, b: Any, g: Any, u: Any, step: Any, tap: Any) -> None:
        half = ir.Constant(_VECTOR, [0.5] * 16)

        def spread(d: Any) -> Any:
            """G d."""
            outer = b.fadd(d[0], d[2])
            return [d[0], b.fmul(half, b.fadd(outer, d[1])), b.fmul(half, b.fsub(outer, d[1])), d[2]]

        taps = [[_load(b, b.add(g, b.mul(tap, _I64(3 * r + s))), 0) for r in range(3)] for s in range(3)]
        columns = [spread(column) for column in taps]
        for r in range(4):
            row = b.add(u, b.mul(step, _I64(r)))
            for j, value in enumerate(spread([column[r] for column in columns])):
                _store(b, value, row, j * LINE)

    return _emit(4, generate)


@intrinsic
def transpose(typing: Any, source: Any, target: Any) -> Any:
    """target (16, 16) = source^T."""

    def generate(context: Any, b: Any, source: Any, target: Any) -> None:
        lines = [_load(b, source, i * LINE) for i in range(16)]
        # Four times the halves of lines i and i + 8 are interleaved: an index's bits go round by one.
        first, second = (
            ir.Constant(ir.VectorType(ir.IntType(32), 16), [half * 8 + i // 2 + i % 2 * 16 for i in range(16)])
            for half in (0, 1)
        )
        for _ in range(4):
            pairs = zip(lines[:8], lines[8:], strict=True)
            lines = [b.shuffle_vector(*pair, half) for pair in pairs for half in (first, second)]
        for i, line in enumerate(lines):
            _store(b, line, target, i * LINE)

    return _emit(2, generate)


@intrinsic
def gradient_tiles(typing: Any, dy: Any, d: Any, pitch: Any, step: Any) -> Any:
    """d[row][tile][column] = A dy A^T of the group's 2x8 gradients; bytes from row to row: pitch in dy, step in d."""

    def generate(context: Any, b: Any, dy: Any, d: Any, pitch: Any, step: Any) -> None:
        def spread(m: Any) -> Any:
            """A m."""
            return [m[0], b.fadd(m[0], m[1]), b.fsub(m[0], m[1]), m[1]]

        below = b.add(dy, pitch)
        for t in range(4):
            columns = [spread([_load(b, row, s * LINE) for row in (dy, below)]) for s in (2 * t, 2 * t + 1)]
            for r in range(4):
                for j, value in enumerate(spread([column[r] for column in columns])):
                    _store(b, value, b.add(d, b.mul(step, _I64(r))), (4 * t + j) * LINE)

    return _emit(4, generate)


@intrinsic
def outer_products(typing: Any, v: Any, d: Any, m: Any, tiles: Any, first: Any) -> Any:
    """m (16, 16) = or, unless first, += the sum over tiles of v x d, one row and column of them."""

    def generate(context: Any, b: Any, v: Any, d: Any, m: Any, tiles: Any, first: Any) -> None:
        zero = ir.Constant(_VECTOR, None)
        fresh = b.icmp_signed("!=", first, _I64(0))
        sums = [cgutils.alloca_once(b, _VECTOR) for _ in range(16)]
        for c, each in enumerate(sums):
            b.store(b.select(fresh, zero, _load(b, m, c * LINE)), each)
        with cgutils.for_range(b, tiles) as loop:
            offset = b.mul(loop.index, _I64(4 * LINE))
            here, line = b.add(v, offset), _load(b, b.add(d, offset), 0)
            for c, each in enumerate(sums):
                _add_product(b, each, b.load(_at(b, here, 4 * c, _F32)), line)
        for c, each in enumerate(sums):
            _store(b, b.load(each), m, c * LINE)

    return _emit(5, generate)


@intrinsic
def weight_taps(typing: Any, m: Any, dw: Any) -> Any:
    """The 3x3 taps of dw = G^T m G, from tap to tap and from one of m's 4x4 to the next BLOCK bytes."""

    def generate(context: Any, b: Any, m: Any, dw: Any) -> None:
        half = ir.Constant(_VECTOR, [0.5] * 16)

        def gather(m: Any) -> Any:
            """G^T m."""
            plus, minus = b.fmul(half, b.fadd(m[1], m[2])), b.fmul(half, b.fsub(m[1], m[2]))
            return [b.fadd(m[0], plus), minus, b.fadd(plus, m[3])]

        columns = [gather([_load(b, m, (4 * r + j) * BLOCK) for r in range(4)]) for j in range(4)]
        for r in range(3):
            for s, value in enumerate(gather([column[r] for column in columns])):
                _store(b, value, dw, (3 * r + s) * BLOCK)

    return _emit(2, generate)
