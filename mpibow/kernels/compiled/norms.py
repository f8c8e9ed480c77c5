"""Layer, group and RMS normalisation, a row at a time, and local response normalisation, channel by channel."""

import math
from dataclasses import asdict

import numpy as np

from mpibow.graph import FLOAT, Buffers, Call, Kernel
from mpibow.ops import GroupNorm, LayerNorm, RmsNorm
from mpibow.ops.norms import moments

from .native import Address, Arguments, Floats, Single, floats, native, row_at

_f = np.float32


@native
def normalise(
    x: Address,
    y: Address,
    weight: Address,
    inverses: Floats,
    rows: int,
    groups: int,
    channels: int,
    positions: int,
    epsilon: float,
    bias: Address = None,
    means: Floats = None,
) -> None:
    """y = the normalised x; without means, by root mean squares. See `mpibow.ops.norms.Extents`."""
    size = channels * positions
    for row in range(rows):
        at = 4 * row * size
        first = 4 * (row % groups) * channels
        here = floats(x + at, size)
        there = floats(y + at, size)
        scales = floats(weight + first, channels)
        shifts = floats(bias + first, channels)
        mean = _f(0)
        square = _f(0)
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
            for j in range(channels):
                there[j] = (here[j] - mean) * inverse * scales[j] + shifts[j]
        else:
            for c in range(channels):
                part = row_at(x + at, c, positions)
                made = there[c * positions : (c + 1) * positions]
                scale = inverse * scales[c]
                shift = shifts[c]
                for j in range(positions):
                    made[j] = (part[j] - mean) * scale + shift


@native
def normalise_back(
    dy: Address,
    x: Address,
    weight: Address,
    inverses: Floats,
    dweight: Address,
    rows: int,
    groups: int,
    channels: int,
    positions: int,
    means: Floats = None,
    dbias: Address = None,
    dx: Address = None,
) -> None:
    """With h the normalised x and g = dy weight: dx = (g - mean(g) - h mean(g h)) inverse; without dbias mean(g) is
    none."""
    size = channels * positions
    floats(dweight, groups * channels)[:] = 0
    if dbias:
        floats(dbias, groups * channels)[:] = 0
    for row in range(rows):
        at = 4 * row * size
        first = 4 * (row % groups) * channels
        scales = floats(weight + first, channels)
        dscales = floats(dweight + first, channels)
        dshifts = floats(dbias + first, channels)
        slope = floats(dy + at, size)
        here = floats(x + at, size)
        mean = means[row] if dbias else _f(0)
        inverse = inverses[row]
        total = _f(0)
        along = _f(0)
        if dbias == 0:
            for j in range(channels):
                part = slope[j] * (here[j] * inverse)
                dscales[j] += part
                along += part * scales[j]
        elif positions == 1:
            for j in range(channels):
                part = slope[j] * ((here[j] - mean) * inverse)
                dscales[j] += part
                dshifts[j] += slope[j]
                total += slope[j] * scales[j]
                along += part * scales[j]
        else:
            for c in range(channels):
                start = at + 4 * c * positions
                slope = floats(dy + start, positions)
                here = floats(x + start, positions)
                sums = _f(0)
                parts = _f(0)
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
        total /= _f(size)
        along = along / _f(size) * inverse
        if positions == 1:
            made = floats(dx + at, size)
            for j in range(channels):
                made[j] = (slope[j] * scales[j] - total - (here[j] - mean) * along) * inverse
        else:
            for c in range(channels):
                start = at + 4 * c * positions
                slope = floats(dy + start, positions)
                here = floats(x + start, positions)
                made = floats(dx + start, positions)
                scale = scales[c]
                for j in range(positions):
                    made[j] = (slope[j] * scale - total - (here[j] - mean) * along) * inverse


def _common(call: Call) -> Arguments:
    means = call.saved["mean"] if call.op.centred else None
    return {"inverses": call.saved["inverse"], "means": means, **asdict(call.op.extents(call.shapes.y))}


@native
def respond(
    x: Address,
    y: Address,
    base: Address,
    images: int,
    channels: int,
    places: int,
    before: int,
    after: int,
    share: Single,
    k: Single,
    beta: float,
) -> None:
    """y = x base^-beta, base = k + share times the sum of squares of x (images, channels, places) from `before`
    channels ahead to `after` behind."""
    power = _f(-beta)
    size = channels * places
    for image in range(images):
        x_row = row_at(x, image, size)
        y_row = row_at(y, image, size)
        base_row = row_at(base, image, size)
        for c in range(channels):
            mine = base_row[c * places : (c + 1) * places]
            mine[:] = 0
            for other in range(max(0, c - before), min(channels, c + after + 1)):
                seen = x_row[other * places : (other + 1) * places]
                for p in range(places):
                    mine[p] += seen[p] * seen[p]
            for p in range(places):
                mine[p] = k + share * mine[p]
        for p in range(size):
            y_row[p] = x_row[p] * base_row[p] ** power


@native
def respond_back(
    x: Address,
    dy: Address,
    dx: Address,
    base: Address,
    part: Floats,
    images: int,
    channels: int,
    places: int,
    before: int,
    after: int,
    share: float,
    beta: float,
) -> None:
    """dx = dy base^-beta
    - 2 share beta x times the sum of part = x dy base^(-beta - 1) over the channels whose window has this one."""
    power = _f(-beta)
    slope = _f(-2.0 * share * beta)
    size = channels * places
    for image in range(images):
        x_row = row_at(x, image, size)
        dy_row = row_at(dy, image, size)
        dx_row = row_at(dx, image, size)
        base_row = row_at(base, image, size)
        for p in range(size):
            straight = dy_row[p] * base_row[p] ** power
            dx_row[p] = straight
            part[p] = straight * x_row[p] / base_row[p]
        for c in range(channels):
            mine = dx_row[c * places : (c + 1) * places]
            own = x_row[c * places : (c + 1) * places]
            for other in range(max(0, c - after), min(channels, c + before + 1)):
                seen = part[other * places : (other + 1) * places]
                for p in range(places):
                    mine[p] += slope * own[p] * seen[p]


def _extents(call: Call) -> Arguments:
    op = call.op
    images, channels, *rest = call.shapes.y
    return {
        "images": images,
        "channels": channels,
        "places": math.prod(rest),
        "before": op.size // 2,
        "after": (op.size - 1) // 2,
        "share": op.alpha / op.size,
    }


KERNELS = dict.fromkeys(
    (GroupNorm, LayerNorm, RmsNorm),
    Kernel(
        normalise.half(_common), normalise_back.half(_common), lambda op, shapes: Buffers(saved=moments(op, shapes))
    ),
)
RESPONSES = Kernel(
    respond.half(_extents),
    respond_back.half(_extents),
    lambda op, shapes: Buffers(saved={"base": (shapes.y, FLOAT)}, backward={"part": (shapes.y[1:], FLOAT)}),
)  # of LocalResponseNorm
