"""Rotary position embedding: the halves of a row turned against each other, by tables of cosines and sines."""

from __future__ import annotations

from math import prod

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.command import command, floats, native, words
from mpibow.ops.rotary import angles


@native
def turn(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, cos, sin, rows, positions, half): cos and sin are (positions, half), x and y (rows, 2 half)."""
    a = words(arguments, count)
    positions, half = a[5], a[6]
    for row in range(a[4]):
        at, place = 8 * row * half, 4 * (row % positions) * half
        x0, x1 = floats(a[0] + at, half), floats(a[0] + at + 4 * half, half)
        y0, y1 = floats(a[1] + at, half), floats(a[1] + at + 4 * half, half)
        cos, sin = floats(a[2] + place, half), floats(a[3] + place, half)
        for j in range(half):
            y0[j] = x0[j] * cos[j] - x1[j] * sin[j]
            y1[j] = x1[j] * cos[j] + x0[j] * sin[j]
    return 0


def _turned(call: Call, x: Array, y: Array, sign: float) -> Run:
    turns = angles(call.op, x.shape)
    cos, sin = (np.ascontiguousarray(each, np.float32) for each in (np.cos(turns), sign * np.sin(turns)))
    return command(turn, x, y, cos, sin, prod(x.shape[:-1]), *cos.shape)


def forward(call: Call) -> Run:
    return _turned(call, call.x[0], call.y, 1.0)


def backward(call: Call) -> Run:
    (dx,) = call.dx
    assert dx is not None
    return _turned(call, call.dy, dx, -1.0)
