"""Products of matrices as loops over tiles: any strides, factors transposed or not, many products one after the other.

Matrices are given by addresses and by bytes from row to row. The right factor goes through `room` panel by panel, so
that a panel stays in L1 while the rows of the left factor pass by it.
"""

import numba

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Spec

from .code_cache import shared
from .native import Address, Floats, floats, native, row_at
from .panels import TALL, WIDE, multiply_tile, pack, pack_turned
from .vectors import LINE

DEEP = 256  # rows of a panel: 48 KB, and the terms that are added up before a tile is written
ROWS = 256  # of a transposed left factor that are repacked at a time: 256 KB, a part of L2


def room(m: int, n: int, k: int, *, transposed: bool = False) -> int:
    """The floats of scratch that `product` needs; `transposed` refers to the left factor."""
    deep, lines = min(k, DEEP), -(-n // 16)
    lefts = -(-min(m, ROWS) // 16) * 16 * deep if transposed else 0
    return (deep + 16) * min(lines, WIDE) * 16 + lefts


def room_spec(*sizes: int) -> Spec:
    """Room for the largest of the sizes."""
    return ((max(sizes),), FLOAT)


@numba.njit(inline="always")
def _even(columns: int) -> tuple[int, int]:
    """The vectors of so many columns, and their number of panels, which are as even as possible."""
    lines = (columns + 15) // 16
    return lines, (lines + WIDE - 1) // WIDE


@shared
def _pack(right: int, place: int, n: int, k: int, row: int, step: int, at: int, vectors: int) -> None:
    """place (k, vectors) <- so many vectors of columns of right (k, n), from number `at` on."""
    if step == 4:
        pack(vectors, right + at * LINE, place, k, row, min(16, n - 16 * (at + vectors - 1)))
        return
    for v in range(vectors):
        first, columns = right + 16 * (at + v) * step, min(16, n - 16 * (at + v))
        for i in range(0, k, 16):
            pack_turned(first + 4 * i, place + (i * vectors + v) * LINE, step, vectors * LINE, columns, k - i)


@shared
def _pass(
    left: int,
    panel: int,
    out: int,
    m: int,
    k: int,
    vectors: int,
    rest: int,
    row: int,
    step: int,
    group: int,
    out_row: int,
    more: int,
    more_row: int,
) -> None:
    """out (m, vectors) = left (m, k) panel + more; `group` is the distance from 16 rows of left to the next 16."""
    i = 0
    while i < m:
        tall, most = TALL, min(m - i, 16 - i % 16)
        while tall > most:
            tall = 4 if tall > 4 else tall // 2
        beside = 0 if more == 0 else more + i * more_row
        multiply_tile(
            tall,
            vectors,
            left + i // 16 * group + i % 16 * row,
            panel,
            out + i * out_row,
            k,
            row,
            step,
            out_row,
            beside,
            more_row,
            rest,
        )
        i += tall


@shared
def product(
    left: int,
    right: int,
    out: int,
    m: int,
    n: int,
    k: int,
    left_row: int,
    left_step: int,
    right_row: int,
    right_step: int,
    out_row: int,
    more: int,
    more_row: int,
    place: int,
) -> None:
    """out (m, n) = left (m, k) right (k, n) + more, which may be out, a row (more_row = 0), or 0 for none.

    Either the rows or the columns of a factor are contiguous: `row` or `step`, the distance of elements along the row,
    is 4. `place` is the room's address.
    """
    lines, parts = _even(n)
    lefts = place + (min(k, DEEP) + 16) * ((lines + parts - 1) // parts) * LINE
    for top in range(0, m, ROWS):
        rows = min(ROWS, m - top)
        for begin in range(0, k, DEEP):
            deep = min(DEEP, k - begin)
            source, row, step, group = left + top * left_row + begin * left_step, left_row, left_step, 16 * left_row
            if left_step != 4:
                for i in range(0, rows, 16):
                    pack(1, source + 4 * i, lefts + i * 4 * deep, deep, left_step, min(16, rows - i))
                source, row, step, group = lefts, 4, LINE, LINE * deep
            added, added_row = (more, more_row) if begin == 0 else (out, out_row)
            at = 0
            for part in range(parts):
                vectors = lines // parts + (1 if part < lines % parts else 0)
                _pack(right + begin * right_row, place, n, deep, right_row, right_step, at, vectors)
                beside = 0 if added == 0 else added + top * added_row + at * LINE
                _pass(
                    source,
                    place,
                    out + top * out_row + at * LINE,
                    rows,
                    deep,
                    vectors,
                    min(16, n - 16 * (at + vectors - 1)),
                    row,
                    step,
                    group,
                    out_row,
                    beside,
                    added_row,
                )
                at += vectors


def laid_out(n: int, k: int) -> int:
    """The floats of a factor (k, n) that `lay_out` makes panels of."""
    return (k * -(-n // 16) + 16 * WIDE) * 16


@shared
def lay_out(right: int, place: int, n: int, k: int, row: int, step: int) -> None:
    """All panels of a factor (k, n) that several products take, one behind the other."""
    lines, parts = _even(n)
    at = 0
    for part in range(parts):
        vectors = lines // parts + (1 if part < lines % parts else 0)
        _pack(right, place + at * k * LINE, n, k, row, step, at, vectors)
        at += vectors


@shared
def by_laid_out(
    left: int, laid: int, out: int, m: int, n: int, k: int, left_row: int, out_row: int, more: int, more_row: int
) -> None:
    """Like `product`, for a left factor with contiguous rows and a right one from `lay_out`."""
    lines, parts = _even(n)
    at = 0
    for part in range(parts):
        vectors = lines // parts + (1 if part < lines % parts else 0)
        rest, beside = min(16, n - 16 * (at + vectors - 1)), 0 if more == 0 else more + at * LINE
        _pass(
            left,
            laid + at * k * LINE,
            out + at * LINE,
            m,
            k,
            vectors,
            rest,
            left_row,
            4,
            16 * left_row,
            out_row,
            beside,
            more_row,
        )
        at += vectors


@numba.njit(inline="always")
def copied(source: int, target: int, count: int) -> None:
    """target <- source, so many floats."""
    x, y = floats(source, count), floats(target, count)
    for i in range(count):
        y[i] = x[i]


@native
def multiply(
    left: Address,
    right: Address,
    out: Address,
    place: Address,
    count: int,
    left_step: int,
    right_step: int,
    out_step: int,
    m: int,
    n: int,
    k: int,
    row: int,
    step: int,
    right_row: int,
    right_between: int,
    out_row: int,
    more_row: int,
    more: Address = None,
) -> None:
    """`product` of each of `count` matrices; steps are the bytes from one to the next."""
    for i in range(count):
        product(
            left + i * left_step,
            right + i * right_step,
            out + i * out_step,
            m,
            n,
            k,
            row,
            step,
            right_row,
            right_between,
            out_row,
            more,
            more_row,
            place,
        )


@native
def column_sums(x: Address, sums: Floats, rows: int, columns: int) -> None:
    """sums (columns,) = the column sums of x (rows, columns)."""
    sums[:] = 0
    for row in range(rows):
        x_row = row_at(x, row, columns)
        for j in range(columns):
            sums[j] += x_row[j]
