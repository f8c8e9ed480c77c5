"""Rotary position embedding: the halves of a row turned against each other, by tables of cosines and sines."""

from math import prod

import numpy as np

from mpibow.graph import Array, Call, Kernel, Run
from mpibow.ops import Rotary
from mpibow.ops.rotary import angles

from .native import Address, floats, native


@native
def turn(x: Address, y: Address, cos: Address, sin: Address, rows: int, positions: int, half: int) -> None:
    """cos and sin are (positions, half), x and y (rows, 2 half)."""
    for row in range(rows):
        at = 8 * row * half
        place = 4 * (row % positions) * half
        x0 = floats(x + at, half)
        x1 = floats(x + at + 4 * half, half)
        y0 = floats(y + at, half)
        y1 = floats(y + at + 4 * half, half)
        c = floats(cos + place, half)
        s = floats(sin + place, half)
        for j in range(half):
            y0[j] = x0[j] * c[j] - x1[j] * s[j]
            y1[j] = x1[j] * c[j] + x0[j] * s[j]


def _turned(call: Call, x: Array, y: Array, sign: float) -> Run:
    turns = angles(call.op, x.shape)
    cos, sin = (np.ascontiguousarray(each, np.float32) for each in (np.cos(turns), sign * np.sin(turns)))
    rows = prod(x.shape[:-1])
    positions, half = cos.shape
    return turn.command(x=x, y=y, cos=cos, sin=sin, rows=rows, positions=positions, half=half)


KERNELS = {
    Rotary: Kernel(
        lambda call: _turned(call, call.x0, call.y, 1.0), lambda call: _turned(call, call.dy, call.dx0, -1.0)
    )
}
