"""Layer, group and RMS normalisation, a row at a time; rows are contiguous."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.arguments import Address, Floats
from mpibow.kernels.compiled.command import floats, native
from mpibow.ops.norms import Norm, moments

_f = np.float32


@native
def normalise(
    x: Address, y: Address, weight: Address, inverses: Floats, rows: int, groups: int, channels: int, positions: int,
    epsilon: float, bias: Address = None, means: Floats = None,
) -> None:  # fmt: skip
    """y = the normalised x; without means, by root mean squares. See `mpibow.ops.norms.Extents`."""
    size = channels * positions
    for row in range(rows):
        at, first = 4 * row * size, 4 * (row % groups) * channels
        here, there, scales = floats(x + at, size), floats(y + at, size), floats(weight + first, channels)
        mean, square = _f(0), _f(0)
        if bias:
            total = _f(0)
            for j in range(size):
                total += here[j]
            mean = total / _f(size)
            means[row] = mean
        for j in range(size):
            square += (here[j] - mean) * (here[j] - mean)
        inverse = _f(1.0 / math.sqrt(square / _f(size) + epsilon))
        inverses[row] = inverse
        if bias == 0:
            for j in range(channels):
                there[j] = here[j] * inverse * scales[j]
        elif positions == 1:
            shifts = floats(bias + first, channels)
            for j in range(channels):
                there[j] = (here[j] - mean) * inverse * scales[j] + shifts[j]
        else:
            shifts = floats(bias + first, channels)
            for c in range(channels):
                part = floats(x + at + 4 * c * positions, positions)
                made = there[c * positions : (c + 1) * positions]
                scale, shift = inverse * scales[c], shifts[c]
                for j in range(positions):
                    made[j] = (part[j] - mean) * scale + shift


@native
def normalise_back(
    dy: Address, x: Address, weight: Address, inverses: Floats, dweight: Address, rows: int, groups: int,
    channels: int, positions: int, means: Floats = None, dbias: Address = None, dx: Address = None,
) -> None:  # fmt: skip
    """With h the normalised x and g = dy weight: dx = (g - mean(g) - h mean(g h)) inverse; without dbias mean(g) is
    none."""
    size = channels * positions
    floats(dweight, groups * channels)[:] = 0
    if dbias:
        floats(dbias, groups * channels)[:] = 0
    for row in range(rows):
        at, first = 4 * row * size, 4 * (row % groups) * channels
        scales, dscales = floats(weight + first, channels), floats(dweight + first, channels)
        mean, inverse = means[row] if dbias else _f(0), inverses[row]
        total, along = _f(0), _f(0)
        if dbias == 0:
            slope, here = floats(dy + at, size), floats(x + at, size)
            for j in range(channels):
                part = slope[j] * (here[j] * inverse)
                dscales[j] += part
                along += part * scales[j]
        elif positions == 1:
            slope, here, dshifts = floats(dy + at, size), floats(x + at, size), floats(dbias + first, channels)
            for j in range(channels):
                part = slope[j] * ((here[j] - mean) * inverse)
                dscales[j] += part
                dshifts[j] += slope[j]
                total += slope[j] * scales[j]
                along += part * scales[j]
        else:
            dshifts = floats(dbias + first, channels)
            for c in range(channels):
                start = at + 4 * c * positions
                slope, here = floats(dy + start, positions), floats(x + start, positions)
                sums, parts = _f(0), _f(0)
                for j in range(positions):
                    sums += slope[j]
                    parts += slope[j] * (here[j] - mean)
                parts *= inverse
                dscales[c] += parts
                dshifts[c] += sums
                total += sums * scales[c]
                along += parts * scales[c]
        if dx == 0:
            continue
        total, along = total / _f(size), along / _f(size) * inverse
        if positions == 1:
            slope, here, made = floats(dy + at, size), floats(x + at, size), floats(dx + at, size)
            for j in range(channels):
                made[j] = (slope[j] * scales[j] - total - (here[j] - mean) * along) * inverse
        else:
            for c in range(channels):
                start = at + 4 * c * positions
                slope, here = floats(dy + start, positions), floats(x + start, positions)
                made, scale = floats(dx + start, positions), scales[c]
                for j in range(positions):
                    made[j] = (slope[j] * scale - total - (here[j] - mean) * along) * inverse


def buffers(op: Norm, shapes: Shapes) -> Buffers:
    kept = moments(op, shapes)
    return Buffers(saved=kept)


def _common(call: Call) -> dict[str, Any]:
    means = call.saved["mean"] if call.op.centred else None
    return {"inverses": call.saved["inverse"], "means": means, **asdict(call.op.extents(call.shapes.y))}


def forward(call: Call) -> Run:
    return normalise.on(call, epsilon=call.op.epsilon, **_common(call))


def backward(call: Call) -> Run:
    return normalise_back.on(call, **_common(call))
