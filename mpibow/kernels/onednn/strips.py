"""The parts of low.py's loops, in LLVM's instructions: what a row of taps adds to strips of outputs.

A strip is a row of STRIP outputs, of so many images, or that of an image; its sums, for two blocks of channels, stay in
registers, as far as there are any.
"""

from collections.abc import Iterator

from llvmlite.ir import IRBuilder, Value
from numba.core import cgutils

from mpibow.kernels.compiled.vectors import (
    BLOCK,
    I64,
    LINE,
    LOWEST,
    SUMS,
    VECTOR,
    ZERO,
    ask,
    by_constants,
    is_set,
    load,
    not_below,
    parts_of,
    places,
    plus_product,
    registers,
    scalar_at,
    store,
)
from mpibow.kernels.isa import ISA

STRIP = 8 if ISA == "AVX-512" else 1  # outputs, unless an image's row has more


def _inputs(wide: int, stride: int, back: int, tap: int) -> Iterator[tuple[int, int]]:
    """The outputs of a row that this column of taps adds to, and the inputs' columns: of y, `wide`, and of x. `back`:
    the outputs are gradients of x, and the inputs are those of y."""
    high = stride * wide
    for j in range(high if back else wide):
        column, rest = divmod(j + 1 - tap, stride) if back else (stride * j + tap - 1, 0)
        if not rest and 0 <= column < (wide if back else high):
            yield j, column


@by_constants(3)
def add_taps(
    b: IRBuilder,
    wide: int,
    stride: int,
    back: int,
    x: Value,
    w: Value,
    y: Value,
    rows: Value,
    up: Value,
    on: Value,
    other: Value,
    apart: Value,
    behind: Value,
    beside: Value,
    first: Value,
    bias: Value,
    relu: Value,
    ahead: Value,
) -> None:
    """Adds to a strip at y, of two blocks of channels, what `rows` rows of taps at w make of one block of x; `back`: to
    one of the gradients of x, of those of y, whose rows are `wide`.

    Bytes: `up` from a row of taps to the next in x, `on` in w; `other` from block to block in w, `beside` in y; `apart`
    from image to image in x, `behind` in y. If `first`, sums start with the lines at `bias`; they are not below 0 if
    `relu`. Forward prefetches weights that lie `ahead`."""

    across = stride * wide if back else wide
    images = max(1, STRIP // across)
    sources = places(b, x, apart, images)
    targets = [places(b, at, behind, images) for at in places(b, y, beside, 2)]
    for some in parts_of(2 * images * across, SUMS):
        ats = [(*divmod(at // across, images), at % across) for at in some]  # block of y, image, column
        blocks = sorted({k for k, _, _ in ats})
        sums = {place: cgutils.alloca_once(b, VECTOR) for place in ats}  # they become registers
        with b.if_else(is_set(b, first)) as (begin, go_on):
            with begin:
                lines = {k: load(b, bias, k * LINE) for k in blocks}
                for (k, _, _), each in sums.items():
                    b.store(lines[k], each)
            with go_on:
                for (k, i, j), each in sums.items():
                    b.store(load(b, targets[k][i], j * LINE), each)
        with cgutils.for_range(b, rows) as row, cgutils.for_range(b, I64(16)) as channel:
            offset = b.add(b.mul(row.index, up), b.mul(channel.index, I64(4)))
            line = b.add(b.add(w, b.mul(row.index, on)), b.mul(channel.index, I64(LINE)))
            for tap in range(3):
                factors = {k: load(b, b.add(line, b.mul(I64(k), other)), tap * BLOCK) for k in blocks}
                if not some.start and not back:
                    for each in places(b, b.add(line, ahead), other, 2):
                        ask(b, each, tap * BLOCK)
                for i, source in enumerate(sources):
                    for j, column in _inputs(wide, stride, back, tap):
                        if totals := [(k, sums[k, i, j]) for k in blocks if (k, i, j) in sums]:
                            value = scalar_at(b, b.add(source, offset), column * LINE)
                            for k, total in totals:
                                b.store(plus_product(b, b.load(total), value, factors[k]), total)
        lowest = b.select(is_set(b, relu), ZERO, LOWEST)
        for (k, i, j), each in sums.items():
            store(b, not_below(b, b.load(each), lowest), targets[k][i], j * LINE)


@by_constants(2)
def outer_products(
    b: IRBuilder,
    wide: int,
    stride: int,
    x: Value,
    dy: Value,
    dw: Value,
    images: Value,
    apart: Value,
    behind: Value,
    rows: Value,
    pitch: Value,
    row: Value,
    beside: Value,
    other: Value,
) -> None:
    """dw of a row of taps, one block of C and two of K: sums over images and `rows` rows of outputs of x times dy.

    Bytes: from image to image `apart` in x, `behind` in dy; from row to row of outputs `pitch` in x, `row` in dy;
    from block to block of K `beside` in dy, `other` in dw."""
    lines = min(8, SUMS // 2)

    for tap in range(3):
        with cgutils.for_range(b, I64(16 // lines)) as part:
            sums = [registers(b, lines) for _ in (0, 1)]
            with cgutils.for_range(b, images) as image, cgutils.for_range(b, rows) as at_row:
                here = b.add(b.add(x, b.mul(part.index, I64(4 * lines))), b.mul(image.index, apart))
                here = b.add(here, b.mul(at_row.index, pitch))
                there = b.add(b.add(dy, b.mul(image.index, behind)), b.mul(at_row.index, row))
                for j, column in _inputs(wide, stride, False, tap):
                    factors = [load(b, there, j * LINE), load(b, b.add(there, beside), j * LINE)]
                    for c in range(lines):
                        value = scalar_at(b, here, column * LINE + 4 * c)
                        for factor, own in zip(factors, sums, strict=True):
                            b.store(plus_product(b, b.load(own[c]), value, factor), own[c])
            to = b.add(dw, b.mul(part.index, I64(lines * LINE)))
            for own, place in zip(sums, (to, b.add(to, other)), strict=True):
                for c, each in enumerate(own):
                    store(b, b.load(each), place, tap * BLOCK + c * LINE)
