"""Winograd's loops over groups of tiles.

C and K count blocks of 16 channels here: x (n, C, h, w, 16), weight (K, C, taps, taps, 16 of C, 16 of K), and
y (n, K, h', w', 16) with h' = h + 2 padding - taps + 1. A group has `tall`
rows and WIDE columns of outputs. Of those that extend beyond the image `edge` has a copy, which is 0 there.
"""

from typing import Literal

import numba

from mpibow.kernels.compiled.native import Address, floats, native
from mpibow.kernels.compiled.numeric import inlined
from mpibow.kernels.compiled.products import copied
from mpibow.kernels.compiled.vectors import BLOCK, LINE

from .tiles import (
    add_gradients,
    add_tiles,
    back_products,
    fetch,
    gradient_tiles,
    input_tiles,
    outer_products,
    output_tiles,
    products,
    transpose,
    weight_taps,
    weight_tiles,
)
from .transforms import WIDE

Form = Literal[23, 25, 43]  # of TRANSFORMS
STRIP = 8  # groups that are taken at once: they and their sums, or a row of weights, fit into a core's second cache


@inlined
def _form(form: int) -> tuple[int, int, int, int]:
    """Rows of a group's outputs, outputs of a tile on a side, taps, and inputs of a tile on a side."""
    outputs, taps = divmod(form, 10)
    return 4 * outputs**2 // WIDE, outputs, taps, outputs + taps - 1


@inlined
def _place(group: int, down: int, across: int) -> tuple[int, int, int]:
    """The group's image, row and column."""
    rest, j = divmod(group, across)
    n, i = divmod(rest, down)
    return n, i, j


@inlined
def _fetch_after(tall: int, group: int, down: int, across: int, blocks: int, at: int, high: int, wide: int) -> None:
    """Prefetches the lines of the outputs 8 rows further on, of as many groups: rows of tiles are too short for the
    processor's prefetcher."""
    n, i, j = _place(group + WIDE // tall, down, across)
    for block in range(blocks):
        for row in range(tall):
            fetch(at + (((n * blocks + block) * high + tall * i + row) * wide + WIDE * j) * LINE)


@inlined
def _cut_out(image: int, edge: int, top: int, left: int, rows: int, columns: int, high: int, wide: int) -> None:
    """edge (rows, columns, 16) <- the part of image (high, wide, 16) that begins at top and left, 0 outside of it."""
    for r in range(rows):
        for s in range(columns):
            to = edge + (r * columns + s) * LINE
            i = top + r
            j = left + s
            if 0 <= i < high and 0 <= j < wide:
                copied(image + (i * wide + j) * LINE, to, 16)
            else:
                floats(to, 16)[:] = 0


@numba.njit(inline="always")
def _inputs(
    form: Form, image: int, v: int, step: int, edge: int, i: int, j: int, h: int, wide: int, padding: int
) -> None:
    """V of the group in row i and column j of an image; bytes from row to row: step."""
    tall, _, taps, _ = _form(form)
    high = h + 2 * padding - taps + 1
    broad = wide + 2 * padding - taps + 1
    inner = padding == 0
    top = tall * i - padding
    left = WIDE * j - padding
    if tall * i + tall <= high and WIDE * j + WIDE <= broad:
        bottom = high - tall * i - tall + inner
        right = broad - WIDE * j - WIDE + inner
        at = image + (top * wide + left) * LINE
        input_tiles(form, at, v, wide * LINE, step, i + inner, bottom, j + inner, right)
    else:
        columns = WIDE + taps - 1
        _cut_out(image, edge, top, left, tall + taps - 1, columns, h, wide)
        input_tiles(form, edge, v, columns * LINE, step, 1, 1, 1, 1)


@native
def convolve(
    x: Address,
    weight: Address,
    y: Address,
    relu: int,
    u: Address,
    v: Address,
    m: Address,
    edge: Address,
    back: bool,
    images: int,
    c: int,
    k: int,
    h: int,
    wide: int,
    form: Form,
    padding: int,
    bias: Address = None,
) -> None:
    """y = the convolution of x.

    If `back`, C and K are exchanged in the weight, and its taps reversed: with padding that keeps h and w, that is
    the gradient of the inputs from that of the outputs.
    """
    tall, outputs, taps, size = _form(form)
    high = h + 2 * padding - taps + 1
    broad = wide + 2 * padding - taps + 1
    group, row = 4 * size * LINE, c * size * BLOCK  # bytes of one row: of V and a block, and of U
    for block in range(k):
        for part in range(c):
            source = weight + (block * c + part) * taps * taps * BLOCK
            if back:
                transpose(form, weight + (part * k + block) * taps * taps * BLOCK, m, 1)
                source = m
            for lane in range(16):
                to = u + block * size * row + (part * 16 + lane) * size * LINE
                weight_tiles(form, source + lane * LINE, to, row)
    none = m + STRIP * size * 4 * outputs * LINE
    floats(none, 16)[:] = 0
    across = -(-broad // WIDE)
    down = -(-high // tall)
    groups = images * down * across
    for start in range(0, groups, STRIP):
        some = min(STRIP, groups - start)
        for s in range(some):
            n, i, j = _place(start + s, down, across)
            _fetch_after(tall, start + s, down, across, c, x, h, wide)
            _fetch_after(tall, start + s, down, across, k, y, high, broad)
            for part in range(c):
                image = x + (n * c + part) * h * wide * LINE
                to = v + (s * size * c + part) * group
                _inputs(form, image, to, c * group, edge, i, j, h, wide, padding)
        for block in range(k):
            for r in range(size):
                for s in range(some):
                    here = v + (s * size + r) * c * group
                    to = m + (s * size + r) * 4 * outputs * LINE
                    products(form, here, u + (block * size + r) * row, to, group, c)
            for s in range(some):
                n, i, j = _place(start + s, down, across)
                rows = min(tall, high - tall * i)
                columns = min(WIDE, broad - WIDE * j)
                whole = rows == tall and columns == WIDE
                to = y + (((n * k + block) * high + tall * i) * broad + WIDE * j) * LINE
                pitch = broad if whole else WIDE
                shift = bias + block * LINE if bias else none
                here = m + s * size * 4 * outputs * LINE
                output_tiles(form, here, to if whole else edge, pitch * LINE, shift, relu)
                for r in range(0 if whole else rows):
                    copied(edge + r * WIDE * LINE, to + r * broad * LINE, 16 * columns)


@native
def differentiate(
    x: Address,
    dy: Address,
    dweight: Address,
    v: Address,
    d: Address,
    m: Address,
    edge: Address,
    images: int,
    c: int,
    k: int,
    h: int,
    wide: int,
    form: Form,
    padding: int,
    dbias: Address = None,
) -> None:
    """The gradients dweight, laid out as the weight is, and dbias."""
    tall, _, taps, size = _form(form)
    high = h + 2 * padding - taps + 1
    broad = wide + 2 * padding - taps + 1
    group = 4 * size * LINE
    strip = STRIP * 4 * size * LINE
    area = size * size
    across = -(-broad // WIDE)
    down = -(-high // tall)
    groups = images * down * across
    if dbias:
        floats(dbias, k * 16)[:] = 0
    for start in range(0, groups, STRIP):
        some = min(STRIP, groups - start)
        for s in range(some):
            n, i, j = _place(start + s, down, across)
            _fetch_after(tall, start + s, down, across, c, x, h, wide)
            _fetch_after(tall, start + s, down, across, k, dy, high, broad)
            for part in range(c):
                image = x + (n * c + part) * h * wide * LINE
                _inputs(form, image, v + part * strip + s * group, c * strip, edge, i, j, h, wide, padding)
            whole = tall * i + tall <= high and WIDE * j + WIDE <= broad
            for block in range(k):
                image = dy + (n * k + block) * high * broad * LINE
                to = d + block * strip + s * group
                at = image + (tall * i * broad + WIDE * j) * LINE
                pitch = broad * LINE
                if not whole:
                    _cut_out(image, edge, tall * i, WIDE * j, tall, WIDE, high, broad)
                    at = edge
                    pitch = WIDE * LINE
                gradient_tiles(form, at, to, pitch, k * strip)
                if dbias:
                    add_gradients(form, at, dbias + block * LINE, pitch)
        for r in range(size):
            for j in range(size):
                for block in range(k):
                    for part in range(c):
                        left = v + (r * c + part) * strip + j * LINE
                        right = d + (r * k + block) * strip + j * LINE
                        to = m + ((block * c + part) * area + size * r + j) * BLOCK
                        outer_products(form, left, right, to, 4 * some, start == 0)
    for pair in range(c * k):
        for lane in range(16):
            weight_taps(form, m + pair * area * BLOCK + lane * LINE, dweight + pair * taps * taps * BLOCK + lane * LINE)


@native
def scatter(
    dy: Address,
    weight: Address,
    dx: Address,
    u: Address,
    d: Address,
    m: Address,
    images: int,
    c: int,
    k: int,
    h: int,
    wide: int,
    form: Literal[25],
) -> None:
    """dx = the gradient of the inputs, where there was no padding."""
    tall, outputs, taps, size = _form(form)
    high = h - taps + 1
    broad = wide - taps + 1
    group, row = 4 * size * LINE, k * size * BLOCK  # bytes of one row: of D and a block, and of U
    for block in range(k):
        for part in range(c):
            transpose(form, weight + (block * c + part) * taps * taps * BLOCK, m, 0)
            for lane in range(16):
                weight_tiles(form, m + lane * LINE, u + part * size * row + (block * 16 + lane) * size * LINE, row)
    across = broad // WIDE
    down = high // tall
    for each in range(images * down * across):
        n, i, j = _place(each, down, across)
        for block in range(k):
            at = dy + (((n * k + block) * high + tall * i) * broad + WIDE * j) * LINE
            gradient_tiles(form, at, d + block * group, broad * LINE, k * group)
        for part in range(c):
            for r in range(size):
                to = m + r * (size + WIDE - outputs) * LINE
                back_products(form, d + r * k * group, u + (part * size + r) * row, to, group, k)
            add_tiles(form, m, dx + (((n * c + part) * h + tall * i) * wide + WIDE * j) * LINE, wide * LINE, i, j)
