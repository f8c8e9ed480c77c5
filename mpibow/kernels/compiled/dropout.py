"""Dropout: a mask of bytes from Philox, kept for backward; all kernel sets give the same bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.command import command, floats, integers, native, number, octets, words
from mpibow.kernels.compiled.numeric import philox
from mpibow.ops.philox import stream

_u = np.uint64


@native
def dropped(arguments: int, _: int, count: int, __: int) -> int:
    """(x, counters, y, mask, n, features, node, threshold, scale): element 4 b + i takes word i of block b."""
    a = words(arguments, count)
    n, features, node, threshold, scale = a[4], a[5], _u(a[6]), _u(a[7]), np.float32(number(a[8]))
    counters = integers(a[1], 4 * n)
    blocks = (features + 3) // 4
    for i in range(n):
        seed, epoch = _u(np.uint32(counters[4 * i])), _u(np.uint32(counters[4 * i + 1]))
        low, high = _u(np.uint32(counters[4 * i + 2])), _u(np.uint32(counters[4 * i + 3]))
        mask = octets(a[3] + 4 * blocks * i, 4 * blocks)
        for b in range(blocks):
            w0, w1, w2, w3 = philox(_u(b), low, high, epoch, seed, node)
            mask[4 * b] = w0 >= threshold
            mask[4 * b + 1] = w1 >= threshold
            mask[4 * b + 2] = w2 >= threshold
            mask[4 * b + 3] = w3 >= threshold
        x, y = floats(a[0] + 4 * i * features, features), floats(a[2] + 4 * i * features, features)
        for j in range(features):
            y[j] = x[j] * (np.float32(mask[j]) * scale)
    return 0


@native
def dropped_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, dx, mask, n, features, scale)."""
    a = words(arguments, count)
    features, scale = a[4], np.float32(number(a[5]))
    stride = (features + 3) // 4 * 4
    for i in range(a[3]):
        dy, dx = floats(a[0] + 4 * i * features, features), floats(a[1] + 4 * i * features, features)
        mask = octets(a[2] + stride * i, features)
        for j in range(features):
            dx[j] = dy[j] * (np.float32(mask[j]) * scale)
    return 0


def buffers(op: Any, shapes: Shapes) -> Buffers:
    n, *rest = shapes.y
    return Buffers(saved={"mask": ((n, -(-math.prod(rest) // 4) * 4), "uint8")})  # whole blocks


def forward(call: Call) -> Run:
    (x, counter), rate = call.x, call.op.rate
    n = len(x)
    return command(
        dropped, x, counter, call.y, call.saved["mask"], n, x.size // n, stream(call.name), round(rate * 2**32),
        1.0 / (1.0 - rate),
    )  # fmt: skip


def backward(call: Call) -> Run:
    dy, (dx, *_) = call.dy, call.dx
    assert dx is not None
    n = len(dy)
    return command(dropped_back, dy, dx, call.saved["mask"], n, dy.size // n, 1.0 / (1.0 - call.op.rate))
