"""Means over rectangles of an image (adaptive pooling, windows that count only in part), and over all of it."""

import numpy as np

from mpibow.graph import FLOAT, Buffers, Call, Formats, Kernel, Shapes, Tags
from mpibow.graph.formats import canonical, parse
from mpibow.ops import AdaptiveAvgPool2d, GlobalAvgPool2d

from .native import Address, Arguments, Back, Floats, Words, native, row_at

_f = np.float32


@native
def means(
    back: Back,
    x: Address,
    y: Address,
    rows: Words,
    columns: Words,
    shares: Floats,
    images: int,
    h: int,
    w: int,
    high: int,
    wide: int,
) -> None:
    """y (images, high, wide) = the sum of x (images, h, w)
    from rows[0, i] to rows[1, i] and columns[0, j] to columns[1, j], times shares (high, wide).
    Or, if `back`, x = its gradient, of the gradient y."""
    for image in range(images):
        x_row = row_at(x, image, h * w)
        y_row = row_at(y, image, high * wide)
        if back:
            x_row[:] = 0
        for i in range(high):
            for j in range(wide):
                if back:
                    share = y_row[i * wide + j] * shares[i * wide + j]
                    for r in range(rows[i], rows[high + i]):
                        for c in range(r * w + columns[j], r * w + columns[wide + j]):
                            x_row[c] += share
                else:
                    total = _f(0)
                    for r in range(rows[i], rows[high + i]):
                        for c in range(r * w + columns[j], r * w + columns[wide + j]):
                            total += x_row[c]
                    y_row[i * wide + j] = total * shares[i * wide + j]


def _windows(call: Call) -> Arguments:
    """The arguments of both directions but for images and means."""
    n, c, h, w = call.shapes.x[0]
    high, wide = call.shapes.y[2:]
    rows, tall = call.op.along(0, h, high)
    columns, broad = call.op.along(1, w, wide)
    shares = (1.0 / np.outer(tall, broad)).astype(_f)
    sizes = {"images": n * c, "h": h, "w": w, "high": high, "wide": wide}
    return {"rows": rows, "columns": columns, "shares": shares, **sizes}


WIDTH = 128  # elements at least: shorter inner loops leave the vector registers, longer ones pay in their remainders


def _lanes(tag: str, channels: int) -> int:
    """1 for abcd, the block for aBcd16b, all channels for acdb; 0 for a layout of another kind."""
    match parse(tag):
        case ((0, 1, 2, 3), ()):
            return 1
        case ((0, 1, 2, 3), ((1, block),)) if channels % block == 0:
            return block
        case ((0, 2, 3, 1), ()):
            return channels
    return 0


@native
def image_mean(x: Address, y: Address, sums: Floats, groups: int, positions: int, lanes: int, width: int) -> None:
    """y (groups, lanes) = the mean of x (groups, positions, lanes)."""
    size = positions * lanes
    scale = _f(1.0 / positions)
    whole = size - size % width
    for group in range(groups):
        x_row = row_at(x, group, size)
        y_row = row_at(y, group, lanes)
        if lanes == 1:
            total = _f(0)
            for i in range(size):
                total += x_row[i]
            y_row[0] = scale * total
            continue
        sums[:width] = 0
        for start in range(0, whole, width):
            part = x_row[start : start + width]
            for i in range(width):
                sums[i] += part[i]
        for i in range(whole, size):
            sums[i - whole] += x_row[i]
        for j in range(lanes):
            y_row[j] = scale * sums[j]
        for start in range(lanes, width, lanes):
            for j in range(lanes):
                y_row[j] += scale * sums[start + j]


@native
def image_mean_back(
    dy: Address, dx: Address, shares: Floats, groups: int, positions: int, lanes: int, width: int
) -> None:
    """dx (groups, positions, lanes) = dy / positions."""
    size = positions * lanes
    scale = _f(1.0 / positions)
    whole = size - size % width
    for group in range(groups):
        dy_row = row_at(dy, group, lanes)
        dx_row = row_at(dx, group, size)
        for start in range(0, min(width, size), lanes):
            for j in range(lanes):
                shares[start + j] = scale * dy_row[j]
        for start in range(0, whole, width):
            part = dx_row[start : start + width]
            for i in range(width):
                part[i] = shares[i]
        for i in range(whole, size):
            dx_row[i] = shares[i - whole]


def _side_by_side(shapes: Shapes) -> tuple[int, int]:
    """Lanes, and the number of elements that are summed side by side."""
    lanes = _lanes(shapes.formats.x[0], shapes.x[0][1])
    return lanes, -(-WIDTH // lanes) * lanes


def _extents(call: Call) -> dict[str, int]:
    """The kernels' integers."""
    n, channels, rows, columns = call.shapes.x[0]
    lanes, width = _side_by_side(call.shapes)
    return {"groups": n * channels // lanes, "positions": rows * columns, "lanes": lanes, "width": width}


def image_formats(op: GlobalAvgPool2d, shapes: Shapes, given: Tags) -> Formats:
    (x,) = shapes.x
    (tag,) = given
    return Formats((tag if _lanes(tag, x[1]) else canonical(x),), canonical(shapes.y))


def image_buffers(op: GlobalAvgPool2d, shapes: Shapes) -> Buffers:
    row = (_side_by_side(shapes)[1:], FLOAT)
    return Buffers(forward={"sums": row}, backward={"shares": row})


WINDOWS = Kernel(
    means.half(lambda call: {"back": False, **_windows(call)}),
    means.half(lambda call: {"back": True, "x": call.dx0, "y": call.dy, **_windows(call)}),
)  # of AvgPool2d, too
KERNELS = {
    AdaptiveAvgPool2d: WINDOWS,
    GlobalAvgPool2d: Kernel(image_mean.half(_extents), image_mean_back.half(_extents), image_buffers, image_formats),
}
