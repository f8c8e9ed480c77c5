"""Layer normalisation, a row of features at a time."""

from __future__ import annotations

import math

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.command import command, floats, native, number, words
from mpibow.ops import LayerNorm

_f = np.float32


@native
def normalise(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, weight, bias, mean, inverse, rows, features, epsilon)."""
    a = words(arguments, count)
    rows, features = a[6], a[7]
    weight, bias, means, inverses = (
        floats(a[2], features),
        floats(a[3], features),
        floats(a[4], rows),
        floats(a[5], rows),
    )
    for row in range(rows):
        x, y = floats(a[0] + 4 * row * features, features), floats(a[1] + 4 * row * features, features)
        total, square = _f(0), _f(0)
        for j in range(features):
            total += x[j]
        mean = total / _f(features)
        for j in range(features):
            square += (x[j] - mean) * (x[j] - mean)
        inverse = _f(1.0 / math.sqrt(square / _f(features) + number(a[8])))
        means[row], inverses[row] = mean, inverse
        for j in range(features):
            y[j] = (x[j] - mean) * inverse * weight[j] + bias[j]
    return 0


@native
def normalise_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, x, weight, mean, inverse, dx or 0, dweight, dbias, rows, features).

    With h the normalised x and g = dy weight: dx = (g - mean(g) - h mean(g h)) inverse.
    """
    a = words(arguments, count)
    rows, features = a[8], a[9]
    weight, means, inverses = floats(a[2], features), floats(a[3], rows), floats(a[4], rows)
    dweight, dbias = floats(a[6], features), floats(a[7], features)
    for j in range(features):
        dweight[j] = _f(0)
        dbias[j] = _f(0)
    for row in range(rows):
        dy, x = floats(a[0] + 4 * row * features, features), floats(a[1] + 4 * row * features, features)
        mean, inverse = means[row], inverses[row]
        for j in range(features):
            dweight[j] += dy[j] * ((x[j] - mean) * inverse)
            dbias[j] += dy[j]
        if a[5] == 0:
            continue
        dx = floats(a[5] + 4 * row * features, features)
        total, along = _f(0), _f(0)
        for j in range(features):
            g = dy[j] * weight[j]
            total += g
            along += g * ((x[j] - mean) * inverse)
        total, along = total / _f(features), along / _f(features)
        for j in range(features):
            dx[j] = (dy[j] * weight[j] - total - (x[j] - mean) * inverse * along) * inverse
    return 0


def _extents(op: LayerNorm, shapes: Shapes) -> tuple[int, int]:
    features = math.prod(shapes.y[-op.axes :])
    return math.prod(shapes.y) // features, features


def buffers(op: LayerNorm, shapes: Shapes) -> Buffers:
    column: Spec = ((_extents(op, shapes)[0],), FLOAT)
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
