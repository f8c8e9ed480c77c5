"""Dropout: a mask of bytes from Philox, kept for backward; all kernel sets give the same bits."""

import math

import numpy as np

from mpibow.graph import Array, Buffers, Call, Kernel, Op, Run, Shapes
from mpibow.ops import Dropout
from mpibow.ops.philox import stream

from .native import Address, Single, native, octets, row_at
from .numeric import counter_of, philox

_u = np.uint64


@native
def dropped(
    x: Address,
    counter: Address,
    y: Address,
    mask: Address,
    n: int,
    features: int,
    node: int,
    threshold: int,
    scale: Single,
) -> None:
    """y = x with elements dropped: element 4 b + i takes word i of block b."""
    key = _u(node)
    least = _u(threshold)
    blocks = (features + 3) // 4
    for i in range(n):
        seed, epoch, low, high = counter_of(counter, i)
        mask_row = octets(mask + 4 * blocks * i, 4 * blocks)
        for b in range(blocks):
            w0, w1, w2, w3 = philox(_u(b), low, high, epoch, seed, key)
            mask_row[4 * b] = w0 >= least
            mask_row[4 * b + 1] = w1 >= least
            mask_row[4 * b + 2] = w2 >= least
            mask_row[4 * b + 3] = w3 >= least
        x_row = row_at(x, i, features)
        y_row = row_at(y, i, features)
        for j in range(features):
            y_row[j] = x_row[j] * (np.float32(mask_row[j]) * scale)


@native
def dropped_back(dy: Address, dx: Address, mask: Address, n: int, features: int, scale: Single) -> None:
    """dx = dy where the mask is 1, times scale."""
    stride = (features + 3) // 4 * 4
    for i in range(n):
        dy_row = row_at(dy, i, features)
        dx_row = row_at(dx, i, features)
        mask_row = octets(mask + stride * i, features)
        for j in range(features):
            dx_row[j] = dy_row[j] * (np.float32(mask_row[j]) * scale)


def buffers(op: Op, shapes: Shapes) -> Buffers:
    n, *rest = shapes.y
    return Buffers(saved={"mask": ((n, -(-math.prod(rest) // 4) * 4), "uint8")})  # whole blocks


def forward(call: Call) -> Run:
    node = stream(call.name)
    threshold = round(call.op.rate * 2**32)
    return dropped.on(call, node=node, threshold=threshold, **_common(call, call.y))


def _common(call: Call, y: Array) -> dict[str, float]:
    return {"n": len(y), "features": y.size // len(y), "scale": 1.0 / (1.0 - call.op.rate)}


KERNELS = {Dropout: Kernel(forward, dropped_back.half(lambda call: _common(call, call.dy)), buffers)}
