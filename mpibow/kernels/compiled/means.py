"""Means over rectangles of an image: adaptive pooling, and windows that count only in part."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.arguments import Address, Floats, Words
from mpibow.kernels.compiled.command import floats, native
from mpibow.ops import AdaptiveAvgPool2d, AvgPool2d

Pool = AdaptiveAvgPool2d | AvgPool2d
_f = np.float32


@native
def means(
    x: Address, y: Address, rows: Words, columns: Words, shares: Floats, images: int, h: int, w: int, high: int,
    wide: int,
) -> None:  # fmt: skip
    """y (images, high, wide) = the sum of x (images, h, w)
    from rows[0, i] to rows[1, i] and columns[0, j] to columns[1, j], times shares (high, wide)."""
    for image in range(images):
        x_row, y_row = floats(x + 4 * image * h * w, h * w), floats(y + 4 * image * high * wide, high * wide)
        for i in range(high):
            for j in range(wide):
                total = _f(0)
                for r in range(rows[i], rows[high + i]):
                    for c in range(r * w + columns[j], r * w + columns[wide + j]):
                        total += x_row[c]
                y_row[i * wide + j] = total * shares[i * wide + j]


@native
def means_back(
    dy: Address, dx: Address, rows: Words, columns: Words, shares: Floats, images: int, h: int, w: int, high: int,
    wide: int,
) -> None:  # fmt: skip
    """The gradient of `means`."""
    for image in range(images):
        dy_row, dx_row = floats(dy + 4 * image * high * wide, high * wide), floats(dx + 4 * image * h * w, h * w)
        for c in range(h * w):
            dx_row[c] = _f(0)
        for i in range(high):
            for j in range(wide):
                share = dy_row[i * wide + j] * shares[i * wide + j]
                for r in range(rows[i], rows[high + i]):
                    for c in range(r * w + columns[j], r * w + columns[wide + j]):
                        dx_row[c] += share


def _along(op: Pool, axis: int, extent: int, count: int) -> tuple[Array, Array]:
    """The bounds of `count` windows inside the image, int64 (2, count), and the number of elements that each counts."""
    i = np.arange(count)
    if isinstance(op, AdaptiveAvgPool2d):
        cut = np.array([i * extent // count, -(-(i + 1) * extent // count)])
        return cut, cut[1] - cut[0]
    begin = i * op.stride[axis] - op.padding[axis]
    end = np.minimum(begin + op.kernel[axis], extent + op.padding[axis])
    inside = np.array([np.maximum(begin, 0), np.minimum(end, extent)])
    return inside, end - begin if op.count_padding else inside[1] - inside[0]


def _windows(call: Call) -> dict[str, Any]:
    """The arguments of both kernels but for images and means."""
    (n, c, h, w), (high, wide) = call.shapes.x[0], call.shapes.y[2:]
    (rows, tall), (columns, broad) = _along(call.op, 0, h, high), _along(call.op, 1, w, wide)
    shares = (1.0 / np.outer(tall, broad)).astype(_f)
    sizes = {"images": n * c, "h": h, "w": w, "high": high, "wide": wide}
    return {"rows": rows, "columns": columns, "shares": shares, **sizes}


def forward(call: Call) -> Run:
    return means.on(call, **_windows(call))


def backward(call: Call) -> Run:
    return means_back.on(call, **_windows(call))
