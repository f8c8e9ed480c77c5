"""Group normalisation, one group of a sample's channels at a time: a group is contiguous."""

from __future__ import annotations

import math

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.command import command, floats, native, number, words
from mpibow.ops import GroupNorm

_f = np.float32


@native
def normalise(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, weight, bias, mean, inverse, rows, groups, channels of a group, positions, epsilon)."""
    a = words(arguments, count)
    rows, groups, channels, positions = a[6], a[7], a[8], a[9]
    size, means, inverses = channels * positions, floats(a[4], rows), floats(a[5], rows)
    for row in range(rows):
        at, first = 4 * row * size, 4 * (row % groups) * channels
        x, y = floats(a[0] + at, size), floats(a[1] + at, size)
        weight, bias = floats(a[2] + first, channels), floats(a[3] + first, channels)
        total, square = _f(0), _f(0)
        for j in range(size):
            total += x[j]
        mean = total / _f(size)
        for j in range(size):
            square += (x[j] - mean) * (x[j] - mean)
        inverse = _f(1.0 / math.sqrt(square / _f(size) + number(a[10])))
        means[row], inverses[row] = mean, inverse
        if positions == 1:
            for j in range(channels):
                y[j] = (x[j] - mean) * inverse * weight[j] + bias[j]
        else:
            for c in range(channels):
                part, made = floats(a[0] + at + 4 * c * positions, positions), y[c * positions : (c + 1) * positions]
                scale, shift = inverse * weight[c], bias[c]
                for j in range(positions):
                    made[j] = (part[j] - mean) * scale + shift
    return 0


@native
def normalise_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, x, weight, mean, inverse, dx or 0, dweight, dbias, rows, groups, channels of a group, positions).

    With h the normalised x and g = dy weight: dx = (g - mean(g) - h mean(g h)) inverse.
    """
    a = words(arguments, count)
    rows, groups, channels, positions = a[8], a[9], a[10], a[11]
    size, means, inverses = channels * positions, floats(a[3], rows), floats(a[4], rows)
    dweights, dbiases = floats(a[6], groups * channels), floats(a[7], groups * channels)
    for c in range(groups * channels):
        dweights[c] = _f(0)
        dbiases[c] = _f(0)
    for row in range(rows):
        at, first = 4 * row * size, 4 * (row % groups) * channels
        weight = floats(a[2] + first, channels)
        dweight, dbias = floats(a[6] + first, channels), floats(a[7] + first, channels)
        mean, inverse = means[row], inverses[row]
        total, along = _f(0), _f(0)
        if positions == 1:
            dy, x = floats(a[0] + at, size), floats(a[1] + at, size)
            for j in range(channels):
                part = dy[j] * ((x[j] - mean) * inverse)
                dweight[j] += part
                dbias[j] += dy[j]
                total += dy[j] * weight[j]
                along += part * weight[j]
        else:
            for c in range(channels):
                here = at + 4 * c * positions
                dy, x = floats(a[0] + here, positions), floats(a[1] + here, positions)
                own, parts = _f(0), _f(0)
                for j in range(positions):
                    own += dy[j]
                    parts += dy[j] * (x[j] - mean)
                parts *= inverse
                dweight[c] += parts
                dbias[c] += own
                total += own * weight[c]
                along += parts * weight[c]
        if a[5] == 0:
            continue
        total, along = total / _f(size), along / _f(size) * inverse
        if positions == 1:
            dy, x, dx = floats(a[0] + at, size), floats(a[1] + at, size), floats(a[5] + at, size)
            for j in range(channels):
                dx[j] = (dy[j] * weight[j] - total - (x[j] - mean) * along) * inverse
        else:
            for c in range(channels):
                here = at + 4 * c * positions
                dy, x = floats(a[0] + here, positions), floats(a[1] + here, positions)
                dx, w = floats(a[5] + here, positions), weight[c]
                for j in range(positions):
                    dx[j] = (dy[j] * w - total - (x[j] - mean) * along) * inverse
    return 0


def _extents(op: GroupNorm, shapes: Shapes) -> tuple[int, int, int, int]:
    n, c, *rest = shapes.y
    return n * op.groups, op.groups, c // op.groups, math.prod(rest)


def buffers(op: GroupNorm, shapes: Shapes) -> Buffers:
    column: Spec = ((shapes.y[0] * op.groups,), FLOAT)
    moments = {"mean": column, "inverse": column}
    return Buffers(saved=moments) if shapes.training else Buffers(forward=moments)


def forward(call: Call) -> Run:
    return command(
        normalise, call.x[0], call.y, call.w["weight"], call.w["bias"], call.buffer("mean"), call.buffer("inverse"),
        *_extents(call.op, call.shapes), float(call.op.epsilon),
    )  # fmt: skip


def backward(call: Call) -> Run:
    (dx,) = call.dx
    return command(
        normalise_back, call.dy, call.x[0], call.w["weight"], call.saved["mean"], call.saved["inverse"],
        0 if dx is None else dx, call.dw["weight"], call.dw["bias"], *_extents(call.op, call.shapes),
    )  # fmt: skip
