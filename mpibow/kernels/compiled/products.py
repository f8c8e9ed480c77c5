"""Products of matrices as loops over tiles: any strides, factors transposed or not, many products one after the other.

Matrices are given by addresses and by bytes from row to row. Blocks of the right factor go through `room` as panels, so
that a panel stays in L1 while the rows of the left factor pass by it. For few rows packing contiguous columns would
cost as much as the product: these columns then pass by the rows.
"""

import numba

from mpibow.graph import FLOAT, Spec

from .code_cache import shared
from .native import Address, Floats, floats, native, row_at
from .panels import AHEAD, BESIDE, LATER, TALL, TALLEST, WIDE, multiply_tiles, pack, pack_turned
from .vectors import LINE, turn

DEEP = 128  # rows of a panel: 24 KB, half of L1, and the terms that are added up before a tile is written
GROUP = 48  # rows that are taken at a time: whole tiles; those of a transposed left factor lie side by side
ROWS = 6 * GROUP  # of it that are repacked at a time: 144 KB, a part of L2
NEAR = 12  # vectors of columns that are packed at a time: 96 KB, another part of it
FEW = 16  # rows: they are packed in place of the right factor's columns
NEARBY = 2**17  # floats of a left factor by which panels pass that were never packed: half of L2
LONG = 6 * DEEP if BESIDE else 2**31  # terms of few rows that are taken at a time


def room(m: int, n: int, k: int, *, transposed: bool = False) -> int:
    """The floats of scratch that `product` needs; `transposed` refers to the left factor."""
    deep = min(k, DEEP)
    lines = -(-n // 16)
    lefts = -(-min(m, ROWS) // GROUP) * GROUP * deep if transposed else 0
    return (deep + 16) * min(lines, NEAR) * 16 + lefts


def room_spec(*sizes: int) -> Spec:
    """Room for the largest of the sizes."""
    return (max(sizes),), FLOAT


@numba.njit(inline="always")
def _even(columns: int) -> tuple[int, int]:
    """The vectors of so many columns, and their number of panels, which are as even as possible."""
    lines = (columns + 15) // 16
    return lines, (lines + WIDE - 1) // WIDE


@numba.njit(inline="always")
def _share(lines: int, parts: int, part: int) -> int:
    return lines // parts + (1 if part < lines % parts else 0)


@shared
def lay_out(right: int, place: int, n: int, k: int, row: int, step: int) -> None:
    """All panels of a factor (k, n), one behind the other. What is contiguous is read on and on.

    Of contiguous columns `row` is 4; where only 16 terms are contiguous, 1/16 of the distance to the next 16.
    """
    lines, parts = _even(n)
    most = 16 if step == 4 else k
    ahead = AHEAD * LINE if row == 4 else 2 * WIDE * 16 * step  # where blocks lie apart: to the panel after next
    for begin in range(0, k, most):
        at = 0
        deep = min(most, k - begin)
        for part in range(parts):
            vectors = _share(lines, parts, part)
            panel = place + (at * k + begin * vectors) * LINE
            last = n - 16 * (at + vectors - 1)
            if step == 4:
                pack(vectors, right + begin * row + at * LINE, panel, deep, row, vectors * LINE, min(16, last))
            else:
                for v in range(vectors):
                    for i in range(0, k, 16):
                        first = right + 16 * (at + v) * step + i * row
                        columns = min(16, n - 16 * (at + v))
                        pack_turned(
                            first, panel + (i * vectors + v) * LINE, step, vectors * LINE, columns, k - i, ahead
                        )
            at += vectors


@shared
def by_panels(
    left: int,
    laid: int,
    out: int,
    m: int,
    n: int,
    k: int,
    row: int,
    step: int,
    group: int,
    out_row: int,
    more: int,
    more_row: int,
    later: int,
    later_row: int,
    later_rows: int,
    out_line: int,
    single: bool,
) -> None:
    """out (m, n) = left (m, k) right + more, by right's panels; `group` is from GROUP rows of left to the next.

    `later` is the address of rows that are needed next: tiles prefetch them, where BESIDE is set. `out_line` is the
    distance of vectors of columns in out and more; each panel is a `single` vector, or up to WIDE.
    """
    between = k * LINE if single or BESIDE else LINE
    lines, parts = _even(n)
    few = m % TALL if BESIDE and lines > 1 else 0
    each = -(-later_rows // (parts * max(m // TALL, 1)))
    asked = 0
    for begin, end, highest in ((0, m - few, TALL), (m - few, m, 2)):
        if highest == 2:
            parts = -(-lines * min(few, 2) // max(BESIDE, 1))
        at = 0
        for part in range(parts):
            vectors = _share(lines, parts, part)
            i = begin
            while i < end:
                tall = TALLEST if vectors < WIDE else highest
                most = min(end - i, GROUP - i % GROUP)
                while tall > most:
                    tall = max(4, tall - 4) if tall > 4 else tall // 2
                count = most // tall
                multiply_tiles(
                    tall,
                    vectors,
                    left + i // GROUP * group + i % GROUP * row,
                    laid + at * k * LINE,
                    out + i * out_row + at * out_line,
                    k,
                    row,
                    step,
                    out_row,
                    more + i * more_row + at * out_line if more else 0,
                    more_row,
                    min(16, n - 16 * (at + vectors - 1)),
                    count,
                    later + asked * later_row,
                    later_row,
                    each if asked < later_rows else 0,
                    between,
                    out_line,
                )
                asked += each * count
                i += tall * count
            at += vectors


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
    out_line: int,
) -> None:
    """out (m, n) = left (m, k) right (k, n) + more, which may be out, a row (more_row = 0), or 0 for none.

    Either the rows or the columns of a factor are contiguous: `row` or `step`, the distance of elements along the row,
    is 4; or 16 elements of right's columns are, see `lay_out`. `place` is the room's address.
    """
    lines = (n + 15) // 16
    plain = 4 in (right_row, right_step) and out_line == LINE
    asks = plain and (n if right_step == 4 else k) >= 16 * LATER  # shorter rows are near, or soon prefetched
    if (
        m <= FEW
        and left_step == 4 == right_row != right_step
        and min(k, LONG) + 48 <= (min(k, DEEP) + 16) * min(lines, NEAR)
    ):
        for begin in range(0, k, LONG):
            deep = min(LONG, k - begin)
            added, added_row = (more, more_row) if begin == 0 else (out, out_row)
            for i in range(0, deep, 16):  # the rows are the panel, by which the right factor's contiguous columns pass
                pack_turned(left + 4 * (begin + i), place + i * LINE, left_row, LINE, m, deep - i, AHEAD * LINE)
            block = place + (deep + 16) * LINE
            across = block + 16 * LINE
            for j in range(0, n, 16):
                columns = min(16, n - j)
                here = right + 4 * begin + j * right_step
                later = here + 16 * right_step
                rows = 16 * asks
                by_panels(
                    here,
                    place,
                    block,
                    columns,
                    16,
                    deep,
                    right_step,
                    4,
                    0,
                    LINE,
                    0,
                    0,
                    later,
                    right_step,
                    rows,
                    LINE,
                    False,
                )
                turn(block, across)
                for r in range(m):
                    target = floats(out + r * out_row + 4 * j, columns)
                    found = floats(across + r * LINE, columns)
                    other = floats(added + r * added_row + 4 * j, columns)
                    for c in range(columns):
                        target[c] = found[c] + other[c] if added else found[c]
        return
    turned = left_step != 4
    later_row = out_row if turned else max(right_row, right_step)
    near = NEAR if right_step == 4 else max(WIDE, BESIDE // 2)
    parts = -(-lines // near)
    lefts = place + (min(k, DEEP) + 16) * min(lines, NEAR) * LINE
    for top in range(0, m, ROWS):
        rows = min(ROWS, m - top)
        for begin in range(0, k, DEEP):
            deep = min(DEEP, k - begin)
            source = left + top * left_row + begin * left_step
            row = left_row
            step = left_step
            group = GROUP * left_row
            if turned:
                for i in range(0, rows, GROUP):
                    here = source + 4 * i
                    beside = min(GROUP, rows - i)
                    to = lefts + i * 4 * deep
                    pack((beside + 15) // 16, here, to, deep, left_step, 4 * GROUP, (beside - 1) % 16 + 1)
                source = lefts
                row = 4
                step = 4 * GROUP
                group = 4 * GROUP * deep
            added, added_row = (more, more_row) if begin == 0 else (out, out_row)
            # Of few terms, and with AVX2 of weights' gradients, so few rows that results are written on and on.
            together = GROUP if deep <= 64 or (BESIDE and turned) else rows
            at = 0
            for part in range(parts):
                vectors = _share(lines, parts, part)
                columns = min(16 * vectors, n - 16 * at)
                first = right + begin * right_row
                column = at * out_line
                lay_out(first + 16 * at * right_step, place, columns, deep, right_row, right_step)
                at += vectors
                ends = part == parts - 1
                later = first + (deep * right_row if ends else 16 * at * right_step)
                later_rows = deep if right_step == 4 else 16 * near
                if not asks or (ends and begin + deep == k):
                    later_rows = 0
                for i in range(0, rows, together):
                    these = min(together, rows - i)
                    here = source + i // GROUP * group
                    beside = added + (top + i) * added_row + column if added else 0
                    to = out + (top + i) * out_row + column
                    if turned:
                        later, later_rows = to + these * out_row, these * asks
                    by_panels(
                        here,
                        place,
                        to,
                        these,
                        columns,
                        deep,
                        row,
                        step,
                        group,
                        out_row,
                        beside,
                        added_row,
                        later,
                        later_row,
                        later_rows,
                        out_line,
                        False,
                    )
                    later_rows = 0


def laid_out(n: int, k: int) -> int:
    """The floats of a factor (k, n) that `lay_out` makes panels of."""
    return (k * -(-n // 16) + 16 * WIDE) * 16


@numba.njit(inline="always")
def copied(source: int, target: int, count: int) -> None:
    """target <- source, so many floats."""
    x = floats(source, count)
    y = floats(target, count)
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
    more: Address = None,
    out_line: int = LINE,
) -> None:
    """`product` of each of `count` matrices, and a row `more`; steps are the bytes from one to the next."""
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
            0,
            place,
            out_line,
        )


@native
def multiply_laid(left: Address, right: Address, out: Address, m: int, n: int, k: int, more: Address = None) -> None:
    """out (m, n) = left (m, k) right + a row `more`; right (k, n) lies as (n / 16, k, 16)."""
    rows = -(-m // (-(-m * k // NEARBY) * GROUP)) * GROUP
    row = 4 * k
    for top in range(0, m, rows):
        here = left + top * row
        to = out + top * 4 * n
        by_panels(here, right, to, min(rows, m - top), n, k, row, 4, GROUP * row, 4 * n, more, 0, 0, 0, 0, LINE, True)


@native
def column_sums(x: Floats, sums: Floats) -> None:
    """sums (columns,) = the column sums of x (rows, columns)."""
    columns = len(sums)
    sums[:] = 0
    for row in range(len(x) // columns):
        x_row = row_at(x.ctypes.data, row, columns)
        for j in range(columns):
            sums[j] += x_row[j]
