"""The inner loops of products of matrices, in LLVM's instructions: a tile of the result stays in registers.

A panel holds up to WIDE vectors of columns of the right factor, row after row: (k, vectors, 16), or one vector, and
several follow each other. The left factor is read by single elements, wherever they lie. Addresses and distances are in
bytes.

Rows that are left beside whole tiles have too few sums in a panel of one vector to hide the latency of an addition: one
or two at a time, they pass by several neighbouring panels at once, if there are any.
"""

from collections.abc import Callable
from functools import cache
from itertools import product

from llvmlite.ir import IRBuilder, Value
from numba.core import cgutils

from mpibow.kernels.isa import ISA

from .vectors import (
    I64,
    LINE,
    apart,
    ask,
    columns_of,
    emitted,
    first_lanes,
    is_set,
    load,
    load_some,
    multiply_add,
    places,
    registers,
    scalar_at,
    specialised,
    store,
    store_some,
)

# Rows of a tile, and vectors of its columns. AVX-512 has 32 registers of 16 floats: sums of a tile take 24, enough to
# hide the latency of an addition. AVX2 has 16 of 8, and sums take 12.
TALL, WIDE = (8, 3) if ISA == "AVX-512" else (6, 1)
LATER = 12  # lines that are prefetched of a row that is needed later
AHEAD = 8  # rows, or lines of a row, that are prefetched before they are packed
TALLEST = 12 if WIDE > 1 else TALL  # rows of a tile of fewer vectors
HEIGHTS = sorted({TALLEST, TALL, 4, 2, 1}, reverse=True)
BESIDE = 6 if WIDE == 1 else 0  # panels that one row passes by at once; of two rows half as many


@specialised(HEIGHTS, range(1, max(WIDE + 1, BESIDE) + 1))
@apart
def multiply_tiles(
    b: IRBuilder,
    tall: int,
    wide: int,
    left: Value,
    panel: Value,
    out: Value,
    k: Value,
    row: Value,
    step: Value,
    out_row: Value,
    more: Value,
    more_row: Value,
    rest: Value,
    count: Value,
    later: Value,
    later_row: Value,
    each: Value,
    between: Value,
    out_line: Value,
) -> None:
    """out (rows, vectors) = left (rows, k) panel + more, and so for the next rows, `count` times. In the last vector
    `rest` columns count; `more` may be 0, for none. `row` is the distance of left's rows, `step` that of its elements,
    `between` and `out_line` those of the vectors in the panel, and in out and more.
    Each tile prefetches the next `each` of the rows at `later`, `later_row` apart, where BESIDE is set.
    """
    if tall * wide > TALL * WIDE:  # more sums than registers: never asked for
        return
    pitch = b.select(b.icmp_signed("==", between, I64(LINE)), I64(wide * LINE), I64(LINE)) if WIDE > 1 else I64(LINE)
    some = first_lanes(b, rest)

    def line(place: Value, row: Value, r: int) -> list[Value]:
        start = b.add(place, b.mul(row, I64(r)))
        return places(b, start, out_line, wide)

    with cgutils.for_range(b, count) as tiles:
        top = b.mul(tiles.index, I64(tall))
        start, to, beside = (b.add(x, b.mul(top, of)) for x, of in ((left, row), (out, out_row), (more, more_row)))
        lefts = places(b, start, row, tall)
        sums = [registers(b, wide) for _ in range(tall)]
        for r in range(tall):
            for place in line(to, out_row, r):
                ask(b, place, write=True)
        if BESIDE:
            with cgutils.for_range(b, each) as asked:
                place = b.add(later, b.mul(later_row, b.add(b.mul(tiles.index, each), asked.index)))
                for i in range(LATER):
                    ask(b, place, i * LINE)
        with cgutils.for_range(b, k) as loop:
            here = b.add(panel, b.mul(loop.index, pitch))
            along = b.mul(loop.index, step)
            scalar = cache(lambda r: scalar_at(b, b.add(lefts[r], along), 0))
            vector = cache(lambda v: load(b, b.add(here, b.mul(between, I64(v)))))
            # What there is less of stays in registers.
            for r, v in sorted(product(range(tall), range(wide)), key=lambda place: place[tall < wide]):
                each = sums[r][v]
                b.store(multiply_add(b, scalar(r), vector(v), b.load(each)), each)

        def write(load_last: Callable[..., Value], store_last: Callable[..., None]) -> None:
            with b.if_then(is_set(b, more)):
                for r in range(tall):
                    for read, place, each in zip(
                        [*[load] * (wide - 1), load_last], line(beside, more_row, r), sums[r], strict=True
                    ):
                        b.store(b.fadd(b.load(each), read(b, place)), each)
            for r in range(tall):
                for put, place, each in zip(
                    [*[store] * (wide - 1), store_last], line(to, out_row, r), sums[r], strict=True
                ):
                    put(b, b.load(each), place)

        with b.if_else(b.icmp_signed("==", rest, I64(16))) as (whole, part):  # AVX2 has slow masked stores
            with whole:
                write(load, store)
            with part:
                write(
                    lambda b, place: load_some(b, some, place, 0),
                    lambda b, value, place: store_some(b, some, value, place, 0),
                )


@specialised(range(1, 4))
def pack(b: IRBuilder, wide: int, source: Value, panel: Value, k: Value, row: Value, step: Value, rest: Value) -> None:
    """panel (k, vectors) <- k rows of the source, whose last vector has `rest` columns; panel's rows lie `step`
    from each other."""
    some = first_lanes(b, rest)
    with cgutils.for_range(b, k) as loop:
        start = b.add(source, b.mul(loop.index, row))
        to = b.add(panel, b.mul(loop.index, step))
        later = b.add(start, b.mul(row, I64(AHEAD)))
        for v in range(wide):
            last = v == wide - 1
            ask(b, later, v * LINE)
            line = load_some(b, some, start, v * LINE) if last else load(b, start, v * LINE)
            store(b, line, to, v * LINE)


@emitted
def pack_turned(
    b: IRBuilder, source: Value, panel: Value, row: Value, step: Value, rows: Value, columns: Value, ahead: Value
) -> None:
    """16 lines of a panel, `step` from each other, <- columns of up to 16 rows of the source: 0 beyond the last column,
    anything beyond the last row."""
    some = first_lanes(b, columns)
    lines = []
    for i in range(16):
        there = b.icmp_signed("<", I64(i), rows)
        place = b.add(source, b.select(there, b.mul(row, I64(i)), I64(0)))
        ask(b, b.add(place, ahead))
        lines.append(load_some(b, some, place, 0))
    for i, line in enumerate(columns_of(b, lines)):
        store(b, line, b.add(panel, b.mul(step, I64(i))))
