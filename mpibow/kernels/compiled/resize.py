"""Windows of images scaled to one size: the reference's bits, a line of pixels at a time, by the images' addresses."""

import math

import numba
import numpy as np

from mpibow.graph import Array
from mpibow.kernels.numpy.resize import BITS

from .command import Command
from .native import Doubles, Words, native_stepwise, octets
from .numeric import inlined

_i = np.int32
_b = np.uint8
_u = np.uint64
_HALF = np.int32(1 << (BITS - 1))


# Without fast mathematics: a weight's bits must not depend on which instructions a processor has.
@numba.njit(nogil=True, error_model="numpy")
def taps(first: float, length: float, count: int, size: int) -> tuple[Array, Array]:
    """The reference's taps; near the end of the line they begin earlier, with weights 0, so that none reads past it."""
    scale = length / count
    spread = max(scale, 1.0)
    lows = np.empty(count, np.int64)
    highs = np.empty(count, np.int64)
    most = 0
    for i in range(count):
        centre = first + (i + 0.5) * scale
        lows[i] = max(int(centre - spread + 0.5), 0)
        highs[i] = min(int(centre + spread + 0.5), size)
        most = max(most, highs[i] - lows[i])
    weights = np.zeros((count, most), np.int32)
    line = np.empty(most)
    for i in range(count):
        centre = first + (i + 0.5) * scale
        total = 0.0
        for tap in range(highs[i] - lows[i]):
            line[tap] = max(1.0 - abs((tap + lows[i] - centre + 0.5) * (1.0 / spread)), 0.0)
            total += line[tap]
        start = min(lows[i], size - most)
        for tap in range(highs[i] - lows[i]):
            weights[i, lows[i] - start + tap] = _i(math.floor(line[tap] / total * (1 << BITS) + 0.5))
        lows[i] = start
    return lows, weights


@inlined
def _columns(row: Array, lows: Array, weights: Array, line: Array) -> None:
    """A row of pixels to line (3 s,), plane by plane. `lows` are in bytes."""
    size = len(lows)
    most = _u(weights.shape[1])
    for x in range(size):
        red = _HALF
        green = _HALF
        blue = _HALF
        at = _u(lows[x])
        for tap in range(most):
            weight = weights[x, tap]
            red += weight * _i(row[at])
            green += weight * _i(row[at + _u(1)])
            blue += weight * _i(row[at + _u(2)])
            at += _u(3)
        line[x] = _b(red >> BITS)
        line[x + size] = _b(green >> BITS)
        line[x + 2 * size] = _b(blue >> BITS)


@inlined
def _rows(ring: Array, low: int, weights: Array, sums: Array, out: Array, stride: int) -> None:
    """One row of each plane of out, as sums of the lines from `low` on."""
    size = len(sums) // 3
    for x in range(len(sums)):
        sums[x] = _HALF
    for tap in range(len(weights)):
        line = ring[(low + tap) % len(ring)]
        weight = weights[tap]
        for x in range(len(sums)):
            sums[x] += weight * _i(line[x])
    for plane in range(3):
        target = out[plane * stride :]
        source = sums[plane * size :]
        for x in range(size):
            target[x] = _b(source[x] >> BITS)


@native_stepwise
def resized(size: int, images: Words, parts: Words, sides: Words, windows: Doubles, outs: Words) -> None:
    """As in `resize`."""
    sums = np.empty(3 * size, np.int32)
    for i in range(len(images)):
        top = parts[4 * i]
        left = parts[4 * i + 1]
        width = parts[4 * i + 3]
        columns, across = taps(windows[4 * i + 1], windows[4 * i + 3], size, sides[2 * i + 1])
        rows, down = taps(windows[4 * i], windows[4 * i + 2], size, sides[2 * i])
        ring = np.empty((down.shape[1], 3 * size), np.uint8)
        out = octets(outs[i], 3 * size * size)
        next_row = rows[0]
        for x in range(size):
            columns[x] = 3 * (columns[x] - left)
        for y in range(size):
            while next_row < rows[y] + len(ring):  # ring: the last lines, as many as a row depends on
                row = octets(images[i] + 3 * width * (next_row - top), 3 * width)
                _columns(row, columns, across, ring[next_row % len(ring)])
                next_row += 1
            _rows(ring, rows[y], down[y], sums, out[y * size :], size * size)


def resize(size: int, images: Array, parts: Array, sides: Array, windows: Array, outs: Array) -> Command:
    """Scales windows (n, 4) float64 of n images of sides (n, 2) int64 to (3, size, size) uint8 at addresses outs (n,).

    At the address images[i] is the part parts[i] = (top, left, height, width), int64, of image i, in rows of red, green
    and blue bytes: at least the part that `reach` returns.
    """
    return resized.command(size=size, images=images, parts=parts, sides=sides, windows=windows, outs=outs)


def scale(image: Array, part: Array, sides: Array, window: Array, out: Array) -> None:
    """One window, as `kernels.numpy.resize.resize` scales it."""
    assert image.flags.c_contiguous
    assert out.flags.c_contiguous
    one = np.array([image.ctypes.data]), part[None], sides[None], window[None], np.array([out.ctypes.data])
    resize(out.shape[1], *one)()
