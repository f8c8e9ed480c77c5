"""Root mean square normalisation, a row of features at a time."""

from __future__ import annotations

import math

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.command import command, floats, native, number, words
from mpibow.ops import RmsNorm

_f = np.float32


@native
def normalise(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, weight, inverse, rows, features, epsilon)."""
    a = words(arguments, count)
    rows, features = a[4], a[5]
    weight, inverses = floats(a[2], features), floats(a[3], rows)
    for row in range(rows):
        x, y = floats(a[0] + 4 * row * features, features), floats(a[1] + 4 * row * features, features)
        square = _f(0)
        for j in range(features):
            square += x[j] * x[j]
        inverse = _f(1.0 / math.sqrt(square / _f(features) + number(a[6])))
        inverses[row] = inverse
        for j in range(features):
            y[j] = x[j] * inverse * weight[j]
    return 0


@native
def normalise_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, x, weight, inverse, dx or 0, dweight, rows, features).

    With h = x inverse and g = dy weight: dx = (g - h mean(g h)) inverse.
    """
    a = words(arguments, count)
    rows, features = a[6], a[7]
    weight, inverses, dweight = floats(a[2], features), floats(a[3], rows), floats(a[5], features)
    for j in range(features):
        dweight[j] = _f(0)
    for row in range(rows):
        dy, x = floats(a[0] + 4 * row * features, features), floats(a[1] + 4 * row * features, features)
        inverse, along = inverses[row], _f(0)
        for j in range(features):
            part = dy[j] * (x[j] * inverse)
            dweight[j] += part
            along += part * weight[j]
        if a[4] == 0:
            continue
        dx, along = floats(a[4] + 4 * row * features, features), along * inverse / _f(features)
        for j in range(features):
            dx[j] = (dy[j] * weight[j] - x[j] * along) * inverse
    return 0


def _extents(op: RmsNorm, shapes: Shapes) -> tuple[int, int]:
    features = math.prod(shapes.y[-op.axes :])
    return math.prod(shapes.y) // features, features


def buffers(op: RmsNorm, shapes: Shapes) -> Buffers:
    inverse: dict[str, Spec] = {"inverse": ((_extents(op, shapes)[0],), FLOAT)}
    return Buffers(saved=inverse) if shapes.training else Buffers(forward=inverse)


def forward(call: Call) -> Run:
    extents, epsilon = _extents(call.op, call.shapes), float(call.op.epsilon)
    return command(normalise, call.x[0], call.y, call.w["weight"], call.buffer("inverse"), *extents, epsilon)


def backward(call: Call) -> Run:
    (dx,) = call.dx
    return command(
        normalise_back, call.dy, call.x[0], call.w["weight"], call.saved["inverse"], 0 if dx is None else dx,
        call.dw["weight"], *_extents(call.op, call.shapes),
    )  # fmt: skip
