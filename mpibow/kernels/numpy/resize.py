"""Windows of images scaled to one size by a triangle as wide as the scale: the reference, in whole numbers."""

import numpy as np

from mpibow.graph import Array

# Fractional bits of a weight: 32 less 8 for a pixel, one for the sign, and one for sums that rounding takes above 1.
BITS = 22


def taps(first: float, length: float, count: int, size: int) -> tuple[Array, Array]:
    """The first input of each of `count` pixels (count,) int64, and its weights (count, k) int32, BITS of a fraction.

    Pixel i is the mean of a line's `size` pixels around first + (i + 1/2) length / count, weighted by a triangle that
    ends max(1, length / count) to either side; pixels outside the line do not count.
    """
    scale = length / count
    spread = max(scale, 1.0)
    centres = first + (np.arange(count) + 0.5) * scale
    lows = np.maximum((centres - spread + 0.5).astype(np.int64), 0)
    highs = np.minimum((centres + spread + 0.5).astype(np.int64), size)
    k = int((highs - lows).max())
    weights = np.zeros((count, k))
    total = np.zeros(count)
    for tap in range(k):  # one after the other, so that all kernel sets compute the same sums
        distance = np.abs((tap + lows - centres + 0.5) * (1.0 / spread))
        weights[:, tap] = np.where(tap < highs - lows, np.maximum(1.0 - distance, 0.0), 0.0)
        total += weights[:, tap]
    return lows, np.floor(weights / total[:, None] * (1 << BITS) + 0.5).astype(np.int32)


def resize(image: Array, part: Array, sides: Array, window: Array, out: Array) -> None:
    """Scales `window`, (top, left, height, width), of an image of `sides`, height and width, to uint8 out (3, s, s).

    `image` holds the `part` of it, given as windows are, in whole pixels: uint8 (h, w, 3), at least the part that
    `reach` returns. Columns first, then rows, rounded after each: Pillow's BILINEAR with a box, to the bit where Pillow
    takes columns first as well.
    """
    size = out.shape[1]
    (top, left, height, width) = map(float, window)
    lows, down = taps(top, height, size, int(sides[0]))
    columns, across = taps(left, width, size, int(sides[1]))
    lows = lows - part[0]
    columns = columns - part[1]
    rows = image[lows[0] : lows[-1] + down.shape[1]]
    wide = _line(rows.transpose(2, 0, 1), columns, across)  # (3, h, s)
    out[...] = _line(wide.transpose(0, 2, 1), lows - lows[0], down).transpose(0, 2, 1)


def _line(pixels: Array, lows: Array, weights: Array) -> Array:
    """pixels (..., n) resampled to (..., len(lows))."""
    half = 1 << (BITS - 1)
    last = pixels.shape[-1] - 1
    total = np.full((*pixels.shape[:-1], len(lows)), half, np.int32)
    for tap in range(weights.shape[1]):
        total += weights[:, tap] * pixels[..., np.minimum(lows + tap, last)].astype(np.int32)
    return (total >> BITS).astype(np.uint8)


def reach(windows: Array, sides: Array, size: int) -> Array:
    """The parts (n, 4) int64 of images of sides (n, 2) that windows (n, 4) read, in the windows' form."""
    spread = np.maximum(windows[:, 2:] / size, 1.0)
    low = np.maximum(np.floor(windows[:, :2] - spread), 0).astype(np.int64)
    high = np.minimum(np.ceil(windows[:, :2] + windows[:, 2:] + spread) + 1, sides).astype(np.int64)
    return np.concatenate([low, high - low], axis=1)
