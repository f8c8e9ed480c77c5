"""Winograd's F(2x2, 3x3) for convolutions 3x3 (Lavin & Gray, arXiv:1509.09308): 4 products instead of 9.

Vectors are of 16 channels, in LLVM's own terms: compiled loops do not keep sums in registers. Four tiles of 2x2 outputs
side by side are a group; rows and columns are those of the tiles of 4x4 that they come from:

    U (K / 16, row, C, column, 16)            G g G^T of the weights
    V (row, C / 16, group, tile, column, 16)  B^T d B of the inputs
    D (row, K / 16, group, tile, column, 16)  A dy A^T of the gradients

y = A^T (U V) A, summed over C, is made group by group, so that V stays in the first cache. The weights' gradient is
G^T (V D) G, summed over tiles: some groups at a time, so that the sums are seldom read and written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes, Spec
from mpibow.kernels.compiled.command import Command, command, floats, native, together, words
from mpibow.kernels.compiled.elementwise import clipped, masked
from mpibow.ops import Conv2d
from mpibow.ops.fused import ConvRelu

FORMATS = Formats(("aBcd16b",), "aBcd16b", {"weight": "ABcd16b16a"})
_I64, _F32 = ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_F32, 16)
LINE = 64  # bytes of 16 channels
BLOCK = 16 * LINE  # bytes of 16 lines: of weights one tap of 16 x 16 channels, of V and D one row of a group
ROW = 128  # numbers that loops take at once: of 16 they would be unrolled, and one number at a time
STRIP = 8  # groups that the weights' gradient takes at once


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
def _input(typing: Any, x: Any, v: Any, pitch: Any, step: Any, top: Any, bottom: Any, left: Any, right: Any) -> Any:
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
def _products(typing: Any, v: Any, u: Any, m: Any, blocks: Any) -> Any:
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
def _output(typing: Any, m: Any, y: Any, pitch: Any) -> Any:
    """The group's 2x8 outputs at y of m[row][tile][2]."""

    def generate(context: Any, b: Any, m: Any, y: Any, pitch: Any) -> None:
        below = b.add(y, pitch)
        for s in range(8):
            upper, lower = _out(b, [_load(b, m, (8 * r + s) * LINE) for r in range(4)])
            _store(b, upper, y, s * LINE)
            _store(b, lower, below, s * LINE)

    return _emit(3, generate)


@intrinsic
def _weights(typing: Any, g: Any, u: Any, step: Any, tap: Any) -> Any:
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
def _transpose(typing: Any, source: Any, target: Any) -> Any:
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
def _gradient(typing: Any, dy: Any, d: Any, pitch: Any, step: Any) -> Any:
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
def _outer(typing: Any, v: Any, d: Any, m: Any, tiles: Any, first: Any) -> Any:
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
def _taps(typing: Any, m: Any, dw: Any) -> Any:
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


@native
def convolve(arguments: int, _: int, count: int, __: int) -> int:
    """(x, w, y, u, v, m, n, C / 16, K / 16, h, w, back): y (n, K / 16, h, w, 16) of x (n, C / 16, h, w, 16).

    w (K / 16, C / 16, 3, 3, 16 of C, 16 of K); back: C and K are the other way round in it, and its taps as well.
    """
    a = words(arguments, count)
    x, w, y, u, v, m = a[0], a[1], a[2], a[3], a[4], a[5]
    c, k, h, wide, back = a[7], a[8], a[9], a[10], a[11]
    for block in range(k):
        for part in range(c):
            source = w + (block * c + part) * 9 * BLOCK
            if back:
                for tap in range(9):
                    _transpose(w + ((part * k + block) * 9 + 8 - tap) * BLOCK, m + tap * BLOCK)
                source = m
            for lane in range(16):
                _weights(source + lane * LINE, u + (block * c * 64 + part * 16 + lane) * 4 * LINE, c * 4 * BLOCK, BLOCK)
    across, down, pitch = wide // 8, h // 2, wide * LINE
    for group in range(a[6] * down * across):
        rest, j = divmod(group, across)
        n, i = divmod(rest, down)
        for part in range(c):
            at = x + (((n * c + part) * h + 2 * i - 1) * wide + 8 * j - 1) * LINE
            _input(at, v + part * BLOCK, pitch, c * BLOCK, i, down - 1 - i, j, across - 1 - j)
        for block in range(k):
            for r in range(4):
                _products(v + r * c * BLOCK, u + (block * 4 + r) * c * 4 * BLOCK, m + r * 8 * LINE, c)
            _output(m, y + (((n * k + block) * h + 2 * i) * wide + 8 * j) * LINE, pitch)
    return 0


@native
def differentiate(arguments: int, _: int, count: int, __: int) -> int:
    """(x, dy, dw, v, d, m, n, C / 16, K / 16, h, w): the gradient of the weights, laid out as they are."""
    a = words(arguments, count)
    x, dy, dw, v, d, m = a[0], a[1], a[2], a[3], a[4], a[5]
    c, k, h, wide = a[7], a[8], a[9], a[10]
    across, down, pitch = wide // 8, h // 2, wide * LINE
    groups = a[6] * down * across
    for start in range(0, groups, STRIP):
        size = min(STRIP, groups - start)
        for s in range(size):
            rest, j = divmod(start + s, across)
            n, i = divmod(rest, down)
            for part in range(c):
                at = x + (((n * c + part) * h + 2 * i - 1) * wide + 8 * j - 1) * LINE
                to = v + (part * STRIP + s) * BLOCK
                _input(at, to, pitch, c * STRIP * BLOCK, i, down - 1 - i, j, across - 1 - j)
            for block in range(k):
                at = dy + (((n * k + block) * h + 2 * i) * wide + 8 * j) * LINE
                _gradient(at, d + (block * STRIP + s) * BLOCK, pitch, k * STRIP * BLOCK)
        for r in range(4):
            for j in range(4):
                for block in range(k):
                    for part in range(c):
                        left = v + (r * c + part) * STRIP * BLOCK + j * LINE
                        right = d + (r * k + block) * STRIP * BLOCK + j * LINE
                        _outer(left, right, m + ((block * c + part) * 16 + 4 * r + j) * BLOCK, 4 * size, start == 0)
    for pair in range(c * k):
        for lane in range(16):
            _taps(m + pair * 16 * BLOCK + lane * LINE, dw + pair * 9 * BLOCK + lane * LINE)
    return 0


def fits(op: Conv2d, shapes: Shapes) -> bool:
    """Whether this is faster than oneDNN's convolution, as measured: enough tiles must share the weights' transform."""
    n, c, h, w = shapes.x[0]
    plain = (op.kernel, op.stride, op.padding, op.dilation) == ((3, 3), (1, 1), (1, 1), (1, 1))
    whole = c % 16 == op.channels % 16 == h % 2 == w % 8 == 0
    return plain and whole and op.groups == 1 and max(c, op.channels) <= 256 and n * h * w >= 64


def _extents(shapes: Shapes) -> tuple[int, int, int, int, int]:
    n, c, h, w = shapes.x[0]
    return n, c // 16, shapes.y[1] // 16, h, w


@native
def _finish(arguments: int, _: int, count: int, __: int) -> int:
    """(y, bias, n, K / 16, 16 h w, relu): y += bias, and its negative values to 0 where relu."""
    a = words(arguments, count)
    n, blocks, size, relu = a[2], a[3], a[4], a[5]
    bias, row, zero = floats(a[1], blocks * 16), np.empty(ROW, np.float32), np.float32(0)
    for image in range(n):
        for block in range(blocks):
            y = floats(a[0] + (image * blocks + block) * size * 4, size)
            for j in range(ROW):
                row[j] = bias[block * 16 + j % 16]
            for start in range(0, size, ROW):
                for j in range(ROW):
                    value = y[start + j] + row[j]
                    y[start + j] = value if value > zero or not relu else zero
    return 0


@native
def _bias_gradient(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, dbias, n, K / 16, 16 h w): dbias = the sums of dy."""
    a = words(arguments, count)
    n, blocks, size = a[2], a[3], a[4]
    sums, row = floats(a[1], blocks * 16), np.empty(ROW, np.float32)
    for block in range(blocks):
        for j in range(ROW):
            row[j] = 0
        for image in range(n):
            dy = floats(a[0] + (image * blocks + block) * size * 4, size)
            for start in range(0, size, ROW):
                for j in range(ROW):
                    row[j] += dy[start + j]
        for lane in range(16):
            total = np.float32(0)
            for j in range(lane, ROW, 16):
                total += row[j]
            sums[block * 16 + lane] = total
    return 0


def buffers(op: Conv2d | ConvRelu, shapes: Shapes) -> Buffers:
    n, c, k, h, w = _extents(shapes)
    u, row = (c * k * 16 * BLOCK // 4,), BLOCK // 4
    forward: dict[str, Spec] = {"u": (u, FLOAT), "v": ((c * 4 * row,), FLOAT), "m": ((2 * row,), FLOAT)}
    if not shapes.training:
        return Buffers(forward=forward)
    v, d = (STRIP * c * 4 * row,), (STRIP * k * 4 * row,)
    backward: dict[str, Spec] = {"u": (u, FLOAT), "v": (v, FLOAT), "d": (d, FLOAT), "m": ((9 * row,), FLOAT)}
    if isinstance(op, ConvRelu):
        backward["dz"] = ((n * k * 16 * h * w,), FLOAT)
    return Buffers(forward=forward, backward=backward)


def forward(call: Call) -> Run:
    u, v, m = (call.scratch[key] for key in "uvm")
    n, c, k, h, w = _extents(call.shapes)
    relu, bias = isinstance(call.op, ConvRelu), call.w.get("bias")
    runs = [command(convolve, call.x[0], call.w["weight"], call.y, u, v, m, n, c, k, h, w, 0)]
    if bias is not None:
        runs.append(command(_finish, call.y, bias, n, k, 16 * h * w, relu))
    elif relu:
        runs.append(command(clipped, call.y, call.y, call.y.size, math.inf))
    return together(runs)


def backward(call: Call) -> Run:
    n, c, k, h, w = _extents(call.shapes)
    u, v, d, m = (call.scratch[key] for key in "uvdm")
    runs, dy = list[Command](), call.dy
    if isinstance(call.op, ConvRelu):
        dy = call.scratch["dz"]
        runs.append(command(masked, call.dy, call.y, dy, dy.size))
    if "bias" in call.dw:
        runs.append(command(_bias_gradient, dy, call.dw["bias"], n, k, 16 * h * w))
    runs.append(command(differentiate, call.x[0], dy, call.dw["weight"], v, d, u, n, c, k, h, w))
    if call.dx[0] is not None:
        runs.append(command(convolve, dy, call.w["weight"], call.dx[0], u, d, m, n, k, c, h, w, 1))
    return together(runs)
