"""Local response normalisation over windows of any size, channel by channel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.arguments import Address, Floats, Single
from mpibow.kernels.compiled.command import floats, native
from mpibow.ops import LocalResponseNorm

_f = np.float32


@native
def normalise(
    x: Address, y: Address, base: Address, images: int, channels: int, places: int, before: int, after: int,
    share: Single, k: Single, beta: float,
) -> None:  # fmt: skip
    """y = x base^-beta, base = k + share times the sum of squares of x (images, channels, places) from `before`
    channels ahead to `after` behind."""
    power = _f(-beta)
    size = channels * places
    for image in range(images):
        x_row, y_row = floats(x + 4 * image * size, size), floats(y + 4 * image * size, size)
        base_row = floats(base + 4 * image * size, size)
        for c in range(channels):
            mine = base_row[c * places : (c + 1) * places]
            for p in range(places):
                mine[p] = _f(0)
            for other in range(max(0, c - before), min(channels, c + after + 1)):
                seen = x_row[other * places : (other + 1) * places]
                for p in range(places):
                    mine[p] += seen[p] * seen[p]
            for p in range(places):
                mine[p] = k + share * mine[p]
        for p in range(size):
            y_row[p] = x_row[p] * base_row[p] ** power


@native
def normalise_back(
    x: Address, dy: Address, dx: Address, base: Address, part: Floats, images: int, channels: int, places: int,
    before: int, after: int, share: float, beta: float,
) -> None:  # fmt: skip
    """dx = dy base^-beta
    - 2 share beta x times the sum of part = x dy base^(-beta - 1) over the channels whose window has this one."""
    power, slope = _f(-beta), _f(-2.0 * share * beta)
    size = channels * places
    for image in range(images):
        x_row, dy_row = floats(x + 4 * image * size, size), floats(dy + 4 * image * size, size)
        dx_row, base_row = floats(dx + 4 * image * size, size), floats(base + 4 * image * size, size)
        for p in range(size):
            straight = dy_row[p] * base_row[p] ** power
            dx_row[p], part[p] = straight, straight * x_row[p] / base_row[p]
        for c in range(channels):
            mine, own = dx_row[c * places : (c + 1) * places], x_row[c * places : (c + 1) * places]
            for other in range(max(0, c - after), min(channels, c + before + 1)):
                seen = part[other * places : (other + 1) * places]
                for p in range(places):
                    mine[p] += slope * own[p] * seen[p]


def buffers(op: LocalResponseNorm, shapes: Shapes) -> Buffers:
    base: dict[str, Spec] = {"base": (shapes.y, FLOAT)}
    return Buffers(saved=base, backward={"part": (shapes.y[1:], FLOAT)})


def _extents(call: Call) -> dict[str, Any]:
    op, (images, channels, *rest) = call.op, call.shapes.y
    return {
        "images": images, "channels": channels, "places": math.prod(rest), "before": op.size // 2,
        "after": (op.size - 1) // 2, "share": op.alpha / op.size, "beta": op.beta,
    }  # fmt: skip


def forward(call: Call) -> Run:
    return normalise.on(call, k=call.op.k, **_extents(call))


def backward(call: Call) -> Run:
    return normalise_back.on(call, **_extents(call))
