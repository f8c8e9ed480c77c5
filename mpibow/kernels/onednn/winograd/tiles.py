"""The parts of Winograd's loops, in LLVM's instructions.

Every function takes the form (see TRANSFORMS) first, a constant of the kernel. A group is of four tiles of outputs,
8 outputs wide: side by side where a tile has 2x2, two above two where it has 4x4.
"""

from collections.abc import Callable
from functools import reduce, wraps

from llvmlite.ir import IRBuilder, Value
from numba.core import cgutils

from mpibow.kernels.compiled.vectors import (
    BLOCK,
    I64,
    LINE,
    LOWEST,
    SUMS,
    ZERO,
    ask,
    by_constants,
    emitted,
    is_set,
    load,
    load_where,
    not_below,
    parts_of,
    places,
    plus_product,
    registers,
    scalar_at,
    store,
    transpose_block,
)

from .transforms import TRANSFORMS, WIDE, Transforms, multiply, transposed


def by_form(generate: Callable[..., None]) -> Callable[..., int]:
    """`emitted`, of a form, which is a constant and whose transforms `generate` takes, and further values."""

    @wraps(generate)
    def code(b: IRBuilder, form: int, *values: Value) -> None:
        generate(b, TRANSFORMS[form], *values)

    return by_constants(1)(code)


@by_form
def input_tiles(
    b: IRBuilder,
    f: Transforms,
    x: Value,
    v: Value,
    pitch: Value,
    step: Value,
    top: Value,
    bottom: Value,
    left: Value,
    right: Value,
) -> None:
    """v[row][tile][column] = B^T d B of the group whose upper left input is at x; bytes from row to row: pitch in x,
    step in v. Where top ... right is 0 there is padding on that side."""
    top, bottom, left, right = (is_set(b, edge) for edge in (top, bottom, left, right))
    high = f.tall + f.taps - 1
    wide = WIDE + f.taps - 1
    rows = places(b, x, pitch, high)
    steps = places(b, v, step, f.size)
    padding = f.taps // 2

    def input_at(r: int, s: int) -> Value:
        sides = ((top, r < padding), (bottom, r >= high - padding), (left, s < padding), (right, s >= wide - padding))
        inside = [edge for edge, here in sides if here]
        if not inside:
            return load(b, rows[r], s * LINE)
        return load_where(b, reduce(b.and_, inside), rows[r], s * LINE)

    for t, (above, before) in enumerate(f.corners):
        if not before:
            columns = list[Value]()
        columns += [
            multiply(b, f.into, [input_at(above + r, s) for r in range(f.size)])
            for s in range(len(columns), before + f.size)
        ]
        for r in range(f.size):
            line = [column[r] for column in columns[before : before + f.size]]
            for j, value in enumerate(multiply(b, f.into, line)):
                store(b, value, steps[r], (f.size * t + j) * LINE)


def _sums(b: IRBuilder, f: Transforms, v: Value, u: Value, step: Value, blocks: Value) -> list[list[Value]]:
    """By tile and column: the sum of v[block][tile][column][c] u[block][c][column] over blocks and c, of one row; bytes
    from block to block in v: step."""
    sums = [registers(b, f.size) for _ in range(4)]
    for columns in parts_of(f.size, SUMS // 4):
        with cgutils.for_range(b, blocks) as loop:
            here = b.add(v, b.mul(loop.index, step))
            there = b.add(u, b.mul(loop.index, I64(f.size * BLOCK)))
            for c in range(16):
                weights = {j: load(b, there, (f.size * c + j) * LINE) for j in columns}
                for t, line in enumerate(sums):
                    for j in columns:
                        scalar = scalar_at(b, here, (f.size * t + j) * LINE + 4 * c)
                        b.store(plus_product(b, b.load(line[j]), scalar, weights[j]), line[j])
    return [[b.load(each) for each in line] for line in sums]


@by_form
def products(b: IRBuilder, f: Transforms, v: Value, u: Value, m: Value, step: Value, blocks: Value) -> None:
    """m[tile][output] of one row: the sum over C of v[tile][column] u[column], A^T applied to the columns; bytes from
    block to block of C in v: step."""
    for t, columns in enumerate(_sums(b, f, v, u, step, blocks)):
        for s, value in enumerate(multiply(b, f.out, columns)):
            store(b, value, m, (f.outputs * t + s) * LINE)


@by_form
def output_tiles(b: IRBuilder, f: Transforms, m: Value, y: Value, pitch: Value, bias: Value, relu: Value) -> None:
    """The group's outputs at y of m[row][tile][output], plus the line `bias`, not below 0 if relu; bytes from row to
    row in y: pitch."""
    rows = places(b, y, pitch, f.tall)
    shift = load(b, bias, 0)
    lowest = b.select(is_set(b, relu), ZERO, LOWEST)
    for t, (above, before) in enumerate(f.corners):
        for s in range(f.outputs):
            lines = [load(b, m, (f.outputs * (4 * r + t) + s) * LINE) for r in range(f.size)]
            for r, value in enumerate(multiply(b, f.out, lines)):
                store(b, not_below(b, b.fadd(value, shift), lowest), rows[above + r], (before + s) * LINE)


@by_form
def back_products(b: IRBuilder, f: Transforms, d: Value, u: Value, m: Value, step: Value, blocks: Value) -> None:
    """m[column] of one row of a group's inputs: the sum over K of d[tile][column] u[column], B applied to the columns,
    and tiles added where they overlap; bytes from block to block of K in d: step."""
    line = list[Value]()
    for t, columns in enumerate(_sums(b, f, d, u, step, blocks)):
        values = multiply(b, transposed(f.into), columns)
        begin = f.outputs * t
        shared = len(line) - begin
        line[begin:] = [b.fadd(*pair) for pair in zip(line[begin:], values, strict=False)] + values[shared:]
    for s, value in enumerate(line):
        store(b, value, m, s * LINE)


@by_form
def add_tiles(b: IRBuilder, f: Transforms, m: Value, dx: Value, pitch: Value, i: Value, j: Value) -> None:
    """B m, m[row][column] of the group in row i and column j, to the gradients of its inputs, the upper left one at dx:
    added to the sums of groups above and to the left. Bytes from row to row in dx: pitch."""
    rows = places(b, dx, pitch, f.size)
    wide = f.size + WIDE - f.outputs
    shared = f.size - f.outputs
    above, before = (b.icmp_signed(">", place, I64(0)) for place in (i, j))
    seen = {(True, True): b.or_(above, before), (True, False): above, (False, True): before}
    for s in range(wide):
        values = multiply(b, transposed(f.into), [load(b, m, (wide * r + s) * LINE) for r in range(f.size)])
        for r, value in enumerate(values):
            if r < shared or s < shared:
                value = b.fadd(value, load_where(b, seen[r < shared, s < shared], rows[r], s * LINE))
            store(b, value, rows[r], s * LINE)


@by_form
def weight_tiles(b: IRBuilder, f: Transforms, g: Value, u: Value, step: Value) -> None:
    """u[row][column] = G g G^T of the taps at g, g + BLOCK, ...; step: bytes from row to row in u."""
    lines = [[load(b, g, (f.taps * r + s) * BLOCK) for r in range(f.taps)] for s in range(f.taps)]
    columns = [multiply(b, f.spread, line) for line in lines]
    for r, row in enumerate(places(b, u, step, f.size)):
        for j, value in enumerate(multiply(b, f.spread, [column[r] for column in columns])):
            store(b, value, row, j * LINE)


@by_form
def transpose(b: IRBuilder, f: Transforms, source: Value, target: Value, turned: Value) -> None:
    """target (taps, taps, 16, 16): the blocks of source, each transposed; from the last to the first if turned."""
    turn = is_set(b, turned)
    with cgutils.for_range(b, I64(f.taps * f.taps)) as loop:
        place = b.select(turn, b.sub(I64(f.taps * f.taps - 1), loop.index), loop.index)
        here = b.add(source, b.mul(loop.index, I64(BLOCK)))
        there = b.add(target, b.mul(place, I64(BLOCK)))
        transpose_block(b, here, there)


@by_form
def gradient_tiles(b: IRBuilder, f: Transforms, dy: Value, d: Value, pitch: Value, step: Value) -> None:
    """d[row][tile][column] = A dy A^T of the group's gradients; bytes from row to row: pitch in dy, step in d."""
    rows = places(b, dy, pitch, f.tall)
    steps = places(b, d, step, f.size)
    spread = transposed(f.out)
    for t, (above, before) in enumerate(f.corners):
        inside = rows[above : above + f.outputs]
        columns = [multiply(b, spread, [load(b, row, (before + s) * LINE) for row in inside]) for s in range(f.outputs)]
        for r in range(f.size):
            for j, value in enumerate(multiply(b, spread, [column[r] for column in columns])):
                store(b, value, steps[r], (f.size * t + j) * LINE)


@emitted
def fetch(b: IRBuilder, row: Value) -> None:
    """Prefetches a row of a group's outputs, possibly past the end."""
    for s in range(WIDE):
        ask(b, row, s * LINE)


@by_form
def add_gradients(b: IRBuilder, f: Transforms, dy: Value, total: Value, pitch: Value) -> None:
    """Adds the group's gradients at dy to the line `total`; bytes from row to row: pitch."""
    rows = places(b, dy, pitch, f.tall)
    columns = range(WIDE)
    sums = [reduce(b.fadd, [load(b, row, s * LINE) for row in rows]) for s in columns]
    store(b, b.fadd(load(b, total, 0), reduce(b.fadd, sums)), total, 0)


@by_form
def outer_products(b: IRBuilder, f: Transforms, v: Value, d: Value, m: Value, tiles: Value, first: Value) -> None:
    """m (16, 16) = or, unless first, += the sum over tiles of v x d, one row and column of them."""
    fresh = is_set(b, first)
    for lines in parts_of(16, SUMS):
        sums = dict(zip(lines, registers(b, len(lines)), strict=True))
        for c, each in sums.items():
            b.store(b.select(fresh, ZERO, load(b, m, c * LINE)), each)
        with cgutils.for_range(b, tiles) as loop:
            offset = b.mul(loop.index, I64(f.size * LINE))
            here = b.add(v, offset)
            line = load(b, b.add(d, offset), 0)
            for c, each in sums.items():
                b.store(plus_product(b, b.load(each), scalar_at(b, here, 4 * c), line), each)
        for c, each in sums.items():
            store(b, b.load(each), m, c * LINE)


@by_form
def weight_taps(b: IRBuilder, f: Transforms, m: Value, dw: Value) -> None:
    """The taps of dw = G^T m G, from tap to tap and from one of m's tile to the next BLOCK bytes."""
    gather = transposed(f.spread)
    lines = [[load(b, m, (f.size * r + j) * BLOCK) for r in range(f.size)] for j in range(f.size)]
    columns = [multiply(b, gather, line) for line in lines]
    for r in range(f.taps):
        for s, value in enumerate(multiply(b, gather, [column[r] for column in columns])):
            store(b, value, dw, (f.taps * r + s) * BLOCK)
