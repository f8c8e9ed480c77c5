"""Local response normalisation over windows of any size, channel by channel."""

from __future__ import annotations

import math

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.command import command, floats, native, number, words
from mpibow.ops import LocalResponseNorm

_f = np.float32


@native
def normalise(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, base, images, channels, places, before, after, share, k, beta): base = k + share times the sum of squares
    of x (images, channels, places) from `before` channels ahead to `after` behind, y = x base^-beta."""
    a = words(arguments, count)
    channels, places, before, after = a[4], a[5], a[6], a[7]
    share, k, power = _f(number(a[8])), _f(number(a[9])), _f(-number(a[10]))
    size = channels * places
    for image in range(a[3]):
        x, y = floats(a[0] + 4 * image * size, size), floats(a[1] + 4 * image * size, size)
        base = floats(a[2] + 4 * image * size, size)
        for c in range(channels):
            mine = base[c * places : (c + 1) * places]
            for p in range(places):
                mine[p] = _f(0)
            for other in range(max(0, c - before), min(channels, c + after + 1)):
                seen = x[other * places : (other + 1) * places]
                for p in range(places):
                    mine[p] += seen[p] * seen[p]
            for p in range(places):
                mine[p] = k + share * mine[p]
        for p in range(size):
            y[p] = x[p] * base[p] ** power
    return 0


@native
def normalise_back(arguments: int, _: int, count: int, __: int) -> int:
    """(x, dy, dx, base, part, images, channels, places, before, after, share, beta): dx = dy base^-beta
    - 2 share beta x times the sum of part = x dy base^(-beta - 1) over the channels whose window has this one."""
    a = words(arguments, count)
    channels, places, before, after = a[6], a[7], a[8], a[9]
    power, slope = _f(-number(a[11])), _f(-2.0 * number(a[10]) * number(a[11]))
    size = channels * places
    part = floats(a[4], size)
    for image in range(a[5]):
        x, dy = floats(a[0] + 4 * image * size, size), floats(a[1] + 4 * image * size, size)
        dx, base = floats(a[2] + 4 * image * size, size), floats(a[3] + 4 * image * size, size)
        for p in range(size):
            straight = dy[p] * base[p] ** power
            dx[p], part[p] = straight, straight * x[p] / base[p]
        for c in range(channels):
            mine, own = dx[c * places : (c + 1) * places], x[c * places : (c + 1) * places]
            for other in range(max(0, c - after), min(channels, c + before + 1)):
                seen = part[other * places : (other + 1) * places]
                for p in range(places):
                    mine[p] += slope * own[p] * seen[p]
    return 0


def buffers(op: LocalResponseNorm, shapes: Shapes) -> Buffers:
    base: dict[str, Spec] = {"base": (shapes.y, FLOAT)}
    if not shapes.training:
        return Buffers(forward=base)
    return Buffers(saved=base, backward={"part": (shapes.y[1:], FLOAT)})


def _extents(call: Call) -> tuple[int | float, ...]:
    """Images, channels, places, channels before and after, alpha / size."""
    op, (n, c, *rest) = call.op, call.shapes.y
    return n, c, math.prod(rest), op.size // 2, (op.size - 1) // 2, float(op.alpha / op.size)


def forward(call: Call) -> Run:
    op = call.op
    return command(normalise, call.x[0], call.y, call.buffer("base"), *_extents(call), float(op.k), float(op.beta))


def backward(call: Call) -> Run:
    (dx,) = call.dx
    assert dx is not None
    arrays = (call.x[0], call.dy, dx, call.saved["base"], call.scratch["part"])
    return command(normalise_back, *arrays, *_extents(call), float(call.op.beta))
