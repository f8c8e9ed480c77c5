"""The parts of Winograd's loops, in LLVM's instructions.

Every function takes the form (see TRANSFORMS) first, a constant of the kernel. A group is of four tiles of outputs,
8 outputs wide: side by side where a tile has 2x2, two above two where it has 4x4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce, wraps
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mpibow.kernels.compiled.vectors import (
    F32,
    I64,
    LINE,
    VECTOR,
    ZERO,
    ask,
    at,
    columns_of,
    emit,
    emitted,
    load,
    load_where,
    splat,
    store,
)
from mpibow.kernels.onednn.winograd.transforms import TRANSFORMS, WIDE, Transforms, multiply, transposed

BLOCK = 16 * LINE  # bytes of 16 x 16 channels


def _add_product(b: Any, total: Any, scalar: Any, line: Any) -> None:
    """total += scalar line, as one instruction."""
    product = b.fmul(splat(b, scalar), line, flags=("contract",))
    b.store(b.fadd(b.load(total), product, flags=("contract",)), total)


def _rows(b: Any, address: Any, step: Any, count: int) -> list[Any]:
    return [b.add(address, b.mul(step, I64(r))) for r in range(count)]


def by_form(generate: Callable[..., None]) -> Any:
    """`emitted`, of a form, which is a constant and whose transforms `generate` takes, and further values."""

    @wraps(generate)
    def typed(typing: Any, form: Any, *kinds: Any) -> Any:
        transforms = TRANSFORMS[form.literal_value]
        _, code = emit(1 + len(kinds), lambda b, _, *values: generate(b, transforms, *values))
        return types.int64(form, *[types.int64] * len(kinds)), code

    return intrinsic(prefer_literal=True)(typed)


@by_form
def input_tiles(
    b: Any, f: Transforms, x: Any, v: Any, pitch: Any, step: Any, top: Any, bottom: Any, left: Any, right: Any
) -> None:
    """v[row][tile][column] = B^T d B of the group whose upper left input is at x; bytes from row to row: pitch in x,
    step in v. Where top ... right is 0 there is padding on that side."""
    top, bottom, left, right = (b.icmp_signed("!=", edge, I64(0)) for edge in (top, bottom, left, right))
    high, wide = f.tall + f.taps - 1, WIDE + f.taps - 1
    rows, steps, padding = _rows(b, x, pitch, high), _rows(b, v, step, f.size), f.taps // 2

    def input_at(r: int, s: int) -> Any:
        sides = (
            (top, r < padding),
            (bottom, r >= high - padding),
            (left, s < padding),
            (right, s >= wide - padding),
        )
        inside = [edge for edge, here in sides if here]
        if not inside:
            return load(b, rows[r], s * LINE)
        return load_where(b, reduce(b.and_, inside), rows[r], s * LINE)

    for t, (above, before) in enumerate(f.corners):
        if not before:
            columns: list[Any] = []
        for s in range(len(columns), before + f.size):
            columns.append(multiply(b, f.into, [input_at(above + r, s) for r in range(f.size)]))
        for r in range(f.size):
            line = [column[r] for column in columns[before : before + f.size]]
            for j, value in enumerate(multiply(b, f.into, line)):
                store(b, value, steps[r], (f.size * t + j) * LINE)


def _sums(b: Any, f: Transforms, v: Any, u: Any, step: Any, blocks: Any) -> list[list[Any]]:
    """By tile and column: the sum of v[block][tile][column][c] u[block][c][column] over blocks and c, of one row; bytes
    from block to block in v: step."""
    sums = [cgutils.alloca_once(b, VECTOR) for _ in range(4 * f.size)]  # they become registers
    for each in sums:
        b.store(ZERO, each)
    with cgutils.for_range(b, blocks) as loop:
        here = b.add(v, b.mul(loop.index, step))
        there = b.add(u, b.mul(loop.index, I64(f.size * BLOCK)))
        for c in range(16):
            weights = [load(b, there, (f.size * c + j) * LINE) for j in range(f.size)]
            for i, each in enumerate(sums):
                _add_product(b, each, b.load(at(b, here, i * LINE + 4 * c, F32)), weights[i % f.size])
    return [[b.load(each) for each in sums[f.size * t : f.size * (t + 1)]] for t in range(4)]


@by_form
def products(b: Any, f: Transforms, v: Any, u: Any, m: Any, step: Any, blocks: Any) -> None:
    """m[tile][output] of one row: the sum over C of v[tile][column] u[column], A^T applied to the columns; bytes from
    block to block of C in v: step."""
    for t, columns in enumerate(_sums(b, f, v, u, step, blocks)):
        for s, value in enumerate(multiply(b, f.out, columns)):
            store(b, value, m, (f.outputs * t + s) * LINE)


@by_form
def output_tiles(b: Any, f: Transforms, m: Any, y: Any, pitch: Any, bias: Any, relu: Any) -> None:
    """The group's outputs at y of m[row][tile][output], plus the line `bias`, not below 0 if relu; bytes from row to
    row in y: pitch."""
    rows, shift = _rows(b, y, pitch, f.tall), load(b, bias, 0)
    lowest = b.select(b.icmp_signed("!=", relu, I64(0)), ZERO, ir.Constant(VECTOR, [-math.inf] * 16))
    for t, (above, before) in enumerate(f.corners):
        for s in range(f.outputs):
            lines = [load(b, m, (f.outputs * (4 * r + t) + s) * LINE) for r in range(f.size)]
            for r, value in enumerate(multiply(b, f.out, lines)):
                total = b.fadd(value, shift)
                total = b.select(b.fcmp_ordered("<", total, lowest), lowest, total)
                store(b, total, rows[above + r], (before + s) * LINE)


@by_form
def back_products(b: Any, f: Transforms, d: Any, u: Any, m: Any, step: Any, blocks: Any) -> None:
    """m[column] of one row of a group's inputs: the sum over K of d[tile][column] u[column], B applied to the columns,
    and tiles added where they overlap; bytes from block to block of K in d: step."""
    line: list[Any] = []
    for t, columns in enumerate(_sums(b, f, d, u, step, blocks)):
        values = multiply(b, transposed(f.into), columns)
        begin = f.outputs * t
        shared = len(line) - begin
        line[begin:] = [b.fadd(*pair) for pair in zip(line[begin:], values, strict=False)] + values[shared:]
    for s, value in enumerate(line):
        store(b, value, m, s * LINE)


@by_form
def add_tiles(b: Any, f: Transforms, m: Any, dx: Any, pitch: Any, i: Any, j: Any) -> None:
    """B m, m[row][column] of the group in row i and column j, to the gradients of its inputs, the upper left one at dx:
    added to the sums of groups above and to the left. Bytes from row to row in dx: pitch."""
    rows, wide, shared = _rows(b, dx, pitch, f.size), f.size + WIDE - f.outputs, f.size - f.outputs
    above, before = (b.icmp_signed(">", place, I64(0)) for place in (i, j))
    seen = {(True, True): b.or_(above, before), (True, False): above, (False, True): before}
    for s in range(wide):
        values = multiply(b, transposed(f.into), [load(b, m, (wide * r + s) * LINE) for r in range(f.size)])
        for r, value in enumerate(values):
            if r < shared or s < shared:
                value = b.fadd(value, load_where(b, seen[r < shared, s < shared], rows[r], s * LINE))
            store(b, value, rows[r], s * LINE)


@by_form
def weight_tiles(b: Any, f: Transforms, g: Any, u: Any, step: Any) -> None:
    """u[row][column] = G g G^T of the taps at g, g + BLOCK, ...; step: bytes from row to row in u."""
    lines = [[load(b, g, (f.taps * r + s) * BLOCK) for r in range(f.taps)] for s in range(f.taps)]
    columns = [multiply(b, f.spread, line) for line in lines]
    for r, row in enumerate(_rows(b, u, step, f.size)):
        for j, value in enumerate(multiply(b, f.spread, [column[r] for column in columns])):
            store(b, value, row, j * LINE)


@by_form
def transpose(b: Any, f: Transforms, source: Any, target: Any, turned: Any) -> None:
    """target (taps, taps, 16, 16): the blocks of source, each transposed; from the last to the first if turned."""
    turn = b.icmp_signed("!=", turned, I64(0))
    with cgutils.for_range(b, I64(f.taps * f.taps)) as loop:
        place = b.select(turn, b.sub(I64(f.taps * f.taps - 1), loop.index), loop.index)
        here, there = b.add(source, b.mul(loop.index, I64(BLOCK))), b.add(target, b.mul(place, I64(BLOCK)))
        lines = [load(b, here, i * LINE) for i in range(16)]
        for i, line in enumerate(columns_of(b, lines)):
            store(b, line, there, i * LINE)


@by_form
def gradient_tiles(b: Any, f: Transforms, dy: Any, d: Any, pitch: Any, step: Any) -> None:
    """d[row][tile][column] = A dy A^T of the group's gradients; bytes from row to row: pitch in dy, step in d."""
    rows, steps, spread = _rows(b, dy, pitch, f.tall), _rows(b, d, step, f.size), transposed(f.out)
    for t, (above, before) in enumerate(f.corners):
        inside = rows[above : above + f.outputs]
        columns = [multiply(b, spread, [load(b, row, (before + s) * LINE) for row in inside]) for s in range(f.outputs)]
        for r in range(f.size):
            for j, value in enumerate(multiply(b, spread, [column[r] for column in columns])):
                store(b, value, steps[r], (f.size * t + j) * LINE)


@emitted
def fetch(b: Any, row: Any) -> None:
    """Prefetches a row of a group's outputs, possibly past the end."""
    for s in range(WIDE):
        ask(b, row, s * LINE)


@by_form
def add_gradients(b: Any, f: Transforms, dy: Any, total: Any, pitch: Any) -> None:
    """Adds the group's gradients at dy to the line `total`; bytes from row to row: pitch."""
    rows, columns = _rows(b, dy, pitch, f.tall), range(WIDE)
    sums = [reduce(b.fadd, [load(b, row, s * LINE) for row in rows]) for s in columns]
    store(b, b.fadd(load(b, total, 0), reduce(b.fadd, sums)), total, 0)


@by_form
def outer_products(b: Any, f: Transforms, v: Any, d: Any, m: Any, tiles: Any, first: Any) -> None:
    """m (16, 16) = or, unless first, += the sum over tiles of v x d, one row and column of them."""
    fresh = b.icmp_signed("!=", first, I64(0))
    sums = [cgutils.alloca_once(b, VECTOR) for _ in range(16)]
    for c, each in enumerate(sums):
        b.store(b.select(fresh, ZERO, load(b, m, c * LINE)), each)
    with cgutils.for_range(b, tiles) as loop:
        offset = b.mul(loop.index, I64(f.size * LINE))
        here, line = b.add(v, offset), load(b, b.add(d, offset), 0)
        for c, each in enumerate(sums):
            _add_product(b, each, b.load(at(b, here, 4 * c, F32)), line)
    for c, each in enumerate(sums):
        store(b, b.load(each), m, c * LINE)


@by_form
def weight_taps(b: Any, f: Transforms, m: Any, dw: Any) -> None:
    """The taps of dw = G^T m G, from tap to tap and from one of m's tile to the next BLOCK bytes."""
    gather = transposed(f.spread)
    lines = [[load(b, m, (f.size * r + j) * BLOCK) for r in range(f.size)] for j in range(f.size)]
    columns = [multiply(b, gather, line) for line in lines]
    for r in range(f.taps):
        for s, value in enumerate(multiply(b, gather, [column[r] for column in columns])):
            store(b, value, dw, (f.taps * r + s) * BLOCK)
