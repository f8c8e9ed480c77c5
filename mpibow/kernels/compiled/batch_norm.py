"""Batch normalisation for training of images in blocks of 16 channels, in two passes forward and two backward.

They are memory-bound: one pass over a block computes mean and variance, the next includes relu and sum.
"""

from collections.abc import Callable
from functools import reduce

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba.core import cgutils

from mpibow.graph import FLOAT, Buffers, Call, Run, Shapes
from mpibow.ops import BatchNorm
from mpibow.ops.batch_norm import check_values
from mpibow.ops.fused import NormAddRelu

from .native import Address, Floats, doubles, floats, native_stepwise
from .vectors import F64, I64, LINE, VECTOR, ZERO, emitted, load, multiply_add, registers, specialised, splat, store

KINDS = PLAIN, RELU, ADDED = 0, 1, 2  # ADDED: a sum, and a relu of that
CHUNK = 128  # lines whose sums are float32: they stay in L1, and their error is that of 32 terms
FIRST = 16  # lines that give a first estimate of the first chunk's mean
WAYS = 4  # registers a sum: an addition need not wait for the one before
WIDE = ir.VectorType(F64, 16)
MEAN, INVERSE, SCALE, SHIFT = range(0, 4 * LINE, LINE)  # saved of a block: y = scale x + shift, scale = weight inverse
SLOPE, CONSTANT = 0, LINE  # scratch of a block: dx = slope (x - mean) + scale dz + constant
TOTAL, SQUARES = 0, 2 * LINE  # float64, scratch of a block

_f = np.float32


def _each_line(b: IRBuilder, count: Value, body: Callable[[Value, int], None]) -> None:
    """The code of body(offset in bytes, which of WAYS registers) for each line."""
    with cgutils.for_range(b, b.udiv(count, I64(WAYS))) as loop:
        for way in range(WAYS):
            body(b.add(b.mul(loop.index, I64(WAYS * LINE)), I64(way * LINE)), way)
    rest = b.urem(count, I64(WAYS))
    with cgutils.for_range(b, rest) as loop:
        body(b.mul(b.add(b.sub(count, rest), loop.index), I64(LINE)), 0)


def _total(b: IRBuilder, sums: list[Value]) -> Value:
    return b.fpext(reduce(b.fadd, [b.load(each) for each in sums]), WIDE)


@emitted
def _moments(b: IRBuilder, x: Value, count: Value, seen: Value, state: Value) -> None:
    """Adds `count` lines at x to `state`: the mean of `seen` lines, and the sum of squared deviations from it.

    Chan, Golub & LeVeque's pairwise update, but with deviations from the old mean, so that x is read once. It makes
    squares larger by count d^2, d being the distance of the means. The sum grows by count d^2 seen / (seen + count) at
    least: from the second chunk on, rounding is at most doubled.
    """
    mean = load(b, state, TOTAL, WIDE)
    squares = load(b, state, SQUARES, WIDE)
    centre = b.fptrunc(mean, VECTOR)
    sums = registers(b, WAYS)
    sums_of_squares = registers(b, WAYS)

    def line(offset: Value, way: int) -> None:
        d = b.fsub(load(b, b.add(x, offset)), centre)
        b.store(b.fadd(b.load(sums[way]), d), sums[way])
        b.store(multiply_add(b, d, d, b.load(sums_of_squares[way])), sums_of_squares[way])

    _each_line(b, count, line)
    rounded = b.fsub(mean, b.fpext(centre, WIDE))
    lines = splat(b, b.sitofp(count, F64))
    first = _total(b, sums)
    second = _total(b, sums_of_squares)
    exact = b.fsub(first, b.fmul(lines, rounded))  # of deviations from the mean before it was rounded
    second = b.fsub(second, b.fmul(rounded, b.fadd(first, exact)))
    share = b.fdiv(exact, splat(b, b.sitofp(b.add(seen, count), F64)))
    store(b, b.fadd(mean, share), state, TOTAL)
    store(b, b.fadd(squares, b.fsub(second, b.fmul(exact, share))), state, SQUARES)


def _normalised(b: IRBuilder, x: Value, lines: tuple[Value, Value]) -> Value:
    """The normalised x, with the same bits wherever it is computed: backward finds the relu's sign again."""
    return multiply_add(b, x, *lines)


@specialised(KINDS)
def _normalise(b: IRBuilder, kind: int, x: Value, x1: Value, y: Value, count: Value, saved: Value) -> None:
    """`count` lines of y = scale x + shift; with ADDED plus x1; but for PLAIN, 0 where that is below."""
    scale_shift = load(b, saved, SCALE), load(b, saved, SHIFT)

    def line(offset: Value, way: int) -> None:
        value = _normalised(b, load(b, b.add(x, offset)), scale_shift)
        value = b.fadd(value, load(b, b.add(x1, offset))) if kind == ADDED else value
        if kind != PLAIN:
            value = b.select(b.fcmp_ordered(">", ZERO, value), ZERO, value)  # NaN stays
        store(b, value, b.add(y, offset))

    _each_line(b, count, line)


def _let_through(
    b: IRBuilder, kind: int, dy: Value, x: Value, y: Value, scale_shift: tuple[Value, Value], offset: Value
) -> Value:
    """dz: dy where the relu's argument was above 0."""
    line = load(b, b.add(dy, offset))
    if kind == PLAIN:
        return line
    value = load(b, b.add(y, offset)) if kind == ADDED else _normalised(b, x, scale_shift)
    return b.select(b.fcmp_ordered(">", value, ZERO), line, ZERO)


@specialised(KINDS)
def _products(
    b: IRBuilder, kind: int, x: Value, dy: Value, y: Value, dz: Value, count: Value, saved: Value, state: Value
) -> None:
    """Adds to `state` the sums of dz and of dz (x - mean); writes dz where it does not follow from x."""
    mean = load(b, saved, MEAN)
    scale_shift = (load(b, saved, SCALE), load(b, saved, SHIFT))

    sums = registers(b, WAYS)
    products = registers(b, WAYS)

    def line(offset: Value, way: int) -> None:
        here = load(b, b.add(x, offset))
        through = _let_through(b, kind, dy, here, y, scale_shift, offset)
        if kind == ADDED:
            store(b, through, b.add(dz, offset))
        b.store(b.fadd(b.load(sums[way]), through), sums[way])
        product = multiply_add(b, through, b.fsub(here, mean), b.load(products[way]))
        b.store(product, products[way])

    _each_line(b, count, line)
    for place, parts in ((TOTAL, sums), (SQUARES, products)):
        store(b, b.fadd(load(b, state, place, WIDE), _total(b, parts)), state, place)


@specialised(KINDS)
def _differentiate(
    b: IRBuilder, kind: int, x: Value, dy: Value, dx: Value, count: Value, saved: Value, lines: Value
) -> None:
    """dx = slope (x - mean) + scale dz + constant; with ADDED, dy is dz already."""
    mean, scale, shift = (load(b, saved, place) for place in (MEAN, SCALE, SHIFT))
    slope = load(b, lines, SLOPE)
    constant = load(b, lines, CONSTANT)

    def line(offset: Value, way: int) -> None:
        here = load(b, b.add(x, offset))
        through = _let_through(b, RELU if kind == RELU else PLAIN, dy, here, None, (scale, shift), offset)
        linear = multiply_add(b, slope, b.fsub(here, mean), constant)
        store(b, multiply_add(b, scale, through, linear), b.add(dx, offset))

    _each_line(b, count, line)


@native_stepwise
def train(
    kind: int,
    x: Address,
    y: Address,
    weight: Floats,
    bias: Floats,
    running_mean: Floats,
    running_variance: Floats,
    lines: Address,
    state: Address,
    images: int,
    blocks: int,
    area: int,
    epsilon: float,
    take: float,
    x1: Address = None,
) -> None:
    """y = the normalised x, with x1 and a relu as `kind` says; `take` is the momentum, the kept variance unbiased."""
    values = images * area
    mean = doubles(state + TOTAL, 16)
    squares = doubles(state + SQUARES, 16)
    for block in range(blocks):
        mean[:] = 0
        _moments(x + block * area * LINE, min(area, FIRST), 0, state)
        squares[:] = 0
        seen = 0
        for image in range(images):
            for start in range(0, area, CHUNK):
                some = min(CHUNK, area - start)
                _moments(x + ((image * blocks + block) * area + start) * LINE, some, seen, state)
                seen += some
        saved = lines + block * 4 * LINE
        means = floats(saved + MEAN, 16)
        inverses = floats(saved + INVERSE, 16)
        scales = floats(saved + SCALE, 16)
        shifts = floats(saved + SHIFT, 16)
        for i in range(16):
            channel = block * 16 + i
            variance = squares[i] / values
            inverse = 1 / np.sqrt(variance + epsilon)
            scale = _f(weight[channel] * inverse)
            means[i] = _f(mean[i])
            inverses[i] = _f(inverse)
            scales[i] = scale
            shifts[i] = _f(bias[channel] - mean[i] * np.float64(scale))
            unbiased = squares[i] / (values - 1)
            running_mean[channel] = _f((1 - take) * running_mean[channel] + take * mean[i])
            running_variance[channel] = _f((1 - take) * running_variance[channel] + take * unbiased)
        for image in range(images):
            at = (image * blocks + block) * area * LINE
            _normalise(kind, x + at, x1 + at, y + at, area, saved)


@native_stepwise
def train_back(
    kind: int,
    x: Address,
    dy: Address,
    y: Address,
    dweight: Floats,
    dbias: Floats,
    lines: Address,
    state: Address,
    images: int,
    blocks: int,
    area: int,
    dz: Address = None,
    dx: Address = None,
) -> None:
    """The gradients of `train`: dz, also the gradient of the summand, is written where there is a sum, y read there."""
    total = doubles(state + TOTAL, 16)
    products = doubles(state + SQUARES, 16)
    lines_row = state + 4 * LINE
    slope = floats(lines_row + SLOPE, 16)
    constant = floats(lines_row + CONSTANT, 16)
    values = images * area
    source = dz if kind == ADDED else dy
    for block in range(blocks):
        saved = lines + block * 4 * LINE
        inverse = floats(saved + INVERSE, 16)
        scale = floats(saved + SCALE, 16)
        total[:] = 0
        products[:] = 0
        for image in range(images):
            for start in range(0, area, CHUNK):
                at = ((image * blocks + block) * area + start) * LINE
                _products(kind, x + at, dy + at, y + at, dz + at, min(CHUNK, area - start), saved, state)
        for i in range(16):
            wide = np.float64(inverse[i])
            dweight[block * 16 + i] = _f(products[i] * wide)
            dbias[block * 16 + i] = _f(total[i])
            slope[i] = _f(-scale[i] * products[i] * wide * wide / values)
            constant[i] = _f(-scale[i] * total[i] / values)
        for image in range(images if dx else 0):
            at = (image * blocks + block) * area * LINE
            _differentiate(kind, x + at, source + at, dx + at, area, saved, lines_row)


def parts(op: BatchNorm | NormAddRelu) -> tuple[BatchNorm, bool, bool]:
    """The norm, and whether a sum and a relu follow."""
    return (op.norm, op.added, True) if isinstance(op, NormAddRelu) else (op, False, False)


def _extents(op: BatchNorm | NormAddRelu, shapes: Shapes) -> dict[str, int]:
    n, c, h, w = shapes.y
    _, added, relu = parts(op)
    return {"images": n, "blocks": c // 16, "area": h * w, "kind": ADDED if added else RELU if relu else PLAIN}


def fits(shapes: Shapes) -> bool:
    return shapes.training and shapes.formats.y == "aBcd16b" and shapes.y[1] % 16 == 0


def buffers(op: BatchNorm | NormAddRelu, shapes: Shapes) -> Buffers:
    check_values(shapes.y)
    state = {"state": ((6 * LINE,), "uint8")}
    saved = {"lines": ((4 * shapes.y[1],), FLOAT)}
    dz = {"dx1": (shapes.y, FLOAT)} if parts(op)[1] and 1 not in shapes.wanted else {}
    return Buffers(saved=saved, forward=state, backward={**state, **dz})


def forward(call: Call) -> Run:
    norm, _, _ = parts(call.op)
    kept = call.statistics
    return train.on(
        call,
        running_mean=kept["mean"],
        running_variance=kept["variance"],
        epsilon=norm.epsilon,
        take=norm.momentum,
        **_extents(call.op, call.shapes),
    )


def backward(call: Call) -> Run:
    return train_back.on(call, dz=call.arrays.get("dx1"), **_extents(call.op, call.shapes))
