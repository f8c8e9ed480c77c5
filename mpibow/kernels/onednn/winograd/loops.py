"""Winograd's loops over groups of tiles, and the passes over a whole gradient or output beside them."""

from __future__ import annotations

import numpy as np

from mpibow.kernels.compiled.command import floats, native_with, words
from mpibow.kernels.onednn.winograd import tiles
from mpibow.kernels.onednn.winograd.tiles import (
    BLOCK,
    LINE,
    gradient_tiles,
    input_tiles,
    outer_products,
    output_tiles,
    products,
    transpose,
    weight_taps,
    weight_tiles,
)  # fmt: skip

native = native_with(tiles)
ROW = 128  # numbers that loops take at once: of 16 they would be unrolled, and one number at a time
STRIP = 8  # groups that the weights' gradient takes at once


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
                    transpose(w + ((part * k + block) * 9 + 8 - tap) * BLOCK, m + tap * BLOCK)
                source = m
            for lane in range(16):
                weight_tiles(
                    source + lane * LINE, u + (block * c * 64 + part * 16 + lane) * 4 * LINE, c * 4 * BLOCK, BLOCK
                )
    across, down, pitch = wide // 8, h // 2, wide * LINE
    for group in range(a[6] * down * across):
        rest, j = divmod(group, across)
        n, i = divmod(rest, down)
        for part in range(c):
            at = x + (((n * c + part) * h + 2 * i - 1) * wide + 8 * j - 1) * LINE
            input_tiles(at, v + part * BLOCK, pitch, c * BLOCK, i, down - 1 - i, j, across - 1 - j)
        for block in range(k):
            for r in range(4):
                products(v + r * c * BLOCK, u + (block * 4 + r) * c * 4 * BLOCK, m + r * 8 * LINE, c)
            output_tiles(m, y + (((n * k + block) * h + 2 * i) * wide + 8 * j) * LINE, pitch)
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
                input_tiles(at, to, pitch, c * STRIP * BLOCK, i, down - 1 - i, j, across - 1 - j)
            for block in range(k):
                at = dy + (((n * k + block) * h + 2 * i) * wide + 8 * j) * LINE
                gradient_tiles(at, d + (block * STRIP + s) * BLOCK, pitch, k * STRIP * BLOCK)
        for r in range(4):
            for j in range(4):
                for block in range(k):
                    for part in range(c):
                        left = v + (r * c + part) * STRIP * BLOCK + j * LINE
                        right = d + (r * k + block) * STRIP * BLOCK + j * LINE
                        outer_products(
                            left, right, m + ((block * c + part) * 16 + 4 * r + j) * BLOCK, 4 * size, start == 0
                        )
    for pair in range(c * k):
        for lane in range(16):
            weight_taps(m + pair * 16 * BLOCK + lane * LINE, dw + pair * 9 * BLOCK + lane * LINE)
    return 0


@native
def finish(arguments: int, _: int, count: int, __: int) -> int:
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
def bias_gradient(arguments: int, _: int, count: int, __: int) -> int:
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
