"""Means over rectangles of an image: adaptive pooling, and windows that count only in part."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.command import command, floats, native, words
from mpibow.ops import AdaptiveAvgPool2d, AvgPool2d

Pool = AdaptiveAvgPool2d | AvgPool2d
_f = np.float32


@native
def means(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, rows, columns, shares, images, h, w, high, wide): y (images, high, wide) = the sum of x (images, h, w)
    from rows[0, i] to rows[1, i] and columns[0, j] to columns[1, j], times shares (high, wide)."""
    a = words(arguments, count)
    h, w, high, wide = a[6], a[7], a[8], a[9]
    rows, columns, shares = words(a[2], 2 * high), words(a[3], 2 * wide), floats(a[4], high * wide)
    for image in range(a[5]):
        x, y = floats(a[0] + 4 * image * h * w, h * w), floats(a[1] + 4 * image * high * wide, high * wide)
        for i in range(high):
            for j in range(wide):
                total = _f(0)
                for r in range(rows[i], rows[high + i]):
                    for c in range(r * w + columns[j], r * w + columns[wide + j]):
                        total += x[c]
                y[i * wide + j] = total * shares[i * wide + j]
    return 0


@native
def means_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, dx, rows, columns, shares, images, h, w, high, wide): the gradient of `means`."""
    a = words(arguments, count)
    h, w, high, wide = a[6], a[7], a[8], a[9]
    rows, columns, shares = words(a[2], 2 * high), words(a[3], 2 * wide), floats(a[4], high * wide)
    for image in range(a[5]):
        dy, dx = floats(a[0] + 4 * image * high * wide, high * wide), floats(a[1] + 4 * image * h * w, h * w)
        for c in range(h * w):
            dx[c] = _f(0)
        for i in range(high):
            for j in range(wide):
                share = dy[i * wide + j] * shares[i * wide + j]
                for r in range(rows[i], rows[high + i]):
                    for c in range(r * w + columns[j], r * w + columns[wide + j]):
                        dx[c] += share
    return 0


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


def _bound(call: Call, image: Array, pooled: Array) -> tuple[Array | int, ...]:
    """The arguments of both functions behind the first two."""
    (n, c, h, w), (high, wide) = image.shape, pooled.shape[2:]
    (rows, tall), (columns, broad) = _along(call.op, 0, h, high), _along(call.op, 1, w, wide)
    return rows, columns, (1.0 / np.outer(tall, broad)).astype(_f), n * c, h, w, high, wide


def forward(call: Call) -> Run:
    return command(means, call.x[0], call.y, *_bound(call, call.x[0], call.y))


def backward(call: Call) -> Run:
    (dx,) = call.dx
    assert dx is not None
    return command(means_back, call.dy, dx, *_bound(call, dx, call.dy))
