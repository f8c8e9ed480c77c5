"""Gradients of depthwise convolutions, where oneDNN has only its reference code: windows of 4x4 and more, or dilated.

Images lie in blocks of `lanes` channels: x (n, C, h, w, lanes), dy (n, C, h', w', lanes). For one row of outputs and
one column of taps, the taps inside the image are consecutive, and so are the outputs that read it. The inner loop,
over outputs, has neither edges nor padding to check. It keeps the sums of up to TAPS taps in registers.
"""

import re
from math import prod

import numba
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba.core import cgutils

from mpibow.graph import FLOAT, Array, Call, Shapes, Spec
from mpibow.kernels.compiled.command import Command
from mpibow.kernels.compiled.native import Address, Floats, floats, native
from mpibow.kernels.compiled.vectors import F32, I64, load, places, plus_product, registers, specialised, store
from mpibow.ops import Conv2d

LANES = (8, 16)  # channels of a block, by the width of the machine's vectors
TAPS = 8  # of one column, in registers at once
_layout = re.compile(r"aBcd(\d+)b")


@specialised(LANES, range(1, TAPS + 1))
def _add_products(
    b: IRBuilder,
    lanes: int,
    taps: int,
    x: Value,
    dy: Value,
    sums: Value,
    step: Value,
    pitch: Value,
    row: Value,
    count: Value,
) -> None:
    """sums[t] += the sum of x[t] dy over `count` outputs. Bytes in x: `step` from output to output, `pitch` from tap to
    tap; in sums `row` from tap to tap."""
    kind = ir.VectorType(F32, lanes)
    sums_of = registers(b, taps, kind)
    with cgutils.for_range(b, count) as loop:
        gradient = load(b, b.add(dy, b.mul(loop.index, I64(4 * kind.count))), 0, kind)
        seen = places(b, b.add(x, b.mul(loop.index, step)), pitch, taps)
        for register, place in zip(sums_of, seen, strict=True):
            b.store(plus_product(b, b.load(register), load(b, place, 0, kind), gradient), register)
    for register, place in zip(sums_of, places(b, sums, row, taps), strict=True):
        store(b, b.fadd(load(b, place, 0, kind), b.load(register)), place)


@specialised(LANES, range(1, TAPS + 1))
def _scatter(
    b: IRBuilder,
    lanes: int,
    taps: int,
    dx: Value,
    dy: Value,
    weights: Value,
    step: Value,
    pitch: Value,
    row: Value,
    count: Value,
) -> None:
    """dx[t] += weights[t] dy for each of `count` outputs; steps as in `_add_products`."""
    kind = ir.VectorType(F32, lanes)
    factors = [load(b, place, 0, kind) for place in places(b, weights, row, taps)]
    with cgutils.for_range(b, count) as loop:
        gradient = load(b, b.add(dy, b.mul(loop.index, I64(4 * kind.count))), 0, kind)
        seen = places(b, b.add(dx, b.mul(loop.index, step)), pitch, taps)
        for factor, place in zip(factors, seen, strict=True):
            store(b, plus_product(b, load(b, place, 0, kind), factor, gradient), place)


@specialised(LANES)
def _add_lines(b: IRBuilder, lanes: int, dy: Value, total: Value, count: Value) -> None:
    """total += the sum of `count` lines at dy."""
    kind = ir.VectorType(F32, lanes)
    (register,) = registers(b, 1, kind)
    with cgutils.for_range(b, count) as loop:
        line = load(b, b.add(dy, b.mul(loop.index, I64(4 * kind.count))), 0, kind)
        b.store(b.fadd(b.load(register), line), register)
    store(b, b.fadd(load(b, total, 0, kind), b.load(register)), total)


@numba.njit(inline="always")
def _inside(start: int, step: int, extent: int, count: int) -> tuple[int, int]:
    """The range of k < count for which start + k step is in an image of this extent."""
    return max(0, -(start // step)), min(count, -((start - extent) // step))


@native
def differentiate(
    back: bool,
    x: Address,
    dy: Address,
    weight: Floats,
    lines: Address,
    lanes: int,
    images: int,
    channels: int,
    h: int,
    w: int,
    high: int,
    wide: int,
    rows: int,
    columns: int,
    down: int,
    across: int,
    above: int,
    before: int,
    tall: int,
    broad: int,
    bias: Address = None,
) -> None:
    """The gradients of weight (c, taps) and bias (c,); or, if `back`, x = the gradient of the inputs, computed from dy
    and the weight. Last rows and columns of kernel, stride, padding, dilation; lines (taps + 1, lanes) is scratch."""
    line = 4 * lanes
    area = rows * columns
    blocks = -(-channels // lanes)
    taps = floats(lines, (area + 1) * lanes)
    for block in range(blocks):
        mine = min(lanes, channels - block * lanes)
        taps[:] = 0
        for lane in range(mine if back else 0):
            for tap in range(area):
                taps[tap * lanes + lane] = weight[(block * lanes + lane) * area + tap]
        for image in range(images):
            plane = x + (image * blocks + block) * h * w * line
            outputs = dy + (image * blocks + block) * high * wide * line
            if back:
                floats(plane, h * w * lanes)[:] = 0
            for i in range(high):
                top = i * down - above
                first, last = _inside(top, tall, h, rows)
                for j in range(columns):
                    left = j * broad - before
                    begin, end = _inside(left, across, w, wide)
                    for t in range(first, last, TAPS):
                        here = plane + ((top + t * tall) * w + left + begin * across) * line
                        there = outputs + (i * wide + begin) * line
                        to = lines + (t * columns + j) * line
                        some = min(TAPS, last - t)
                        step = across * line
                        pitch = tall * w * line
                        if back:
                            _scatter(lanes, some, here, there, to, step, pitch, columns * line, end - begin)
                        else:
                            _add_products(lanes, some, here, there, to, step, pitch, columns * line, end - begin)
            if bias:
                _add_lines(lanes, outputs, lines + area * line, high * wide)
        for lane in range(0 if back else mine):
            channel = block * lanes + lane
            for tap in range(area):
                weight[channel * area + tap] = taps[tap * lanes + lane]
            if bias:
                floats(bias, channels)[channel] = taps[area * lanes + lane]


def lanes_of(op: Conv2d, shapes: Shapes, x: str, y: str) -> int:
    """The channels of a block, if x and y are the layouts of its image and outputs; 0 if this kernel does not fit."""
    found = _layout.fullmatch(x)
    lanes = int(found[1]) if found and x == y else 0
    return lanes if 1 < op.groups == op.channels == shapes.x[0][1] and lanes in LANES else 0


def scratch(op: Conv2d, lanes: int) -> Spec:
    return ((prod(op.kernel) + 1) * lanes,), FLOAT


def command_of(call: Call, op: Conv2d, lanes: int, dy: Array, *, back: bool) -> Command:
    """The command that computes the gradient of the inputs (`back`), or the gradients of the weights and bias."""
    n, c, h, w = call.shapes.x[0]
    high, wide = call.shapes.y[2:]
    x = call.dx[0] if back else call.x0
    assert x is not None
    weight, bias = (call.w["weight"], None) if back else (call.dw["weight"], call.dw.get("bias"))
    rows, columns = op.kernel
    down, across = op.stride
    above, before = op.padding
    tall, broad = op.dilation
    return differentiate.command(
        back=back,
        x=x,
        dy=dy,
        weight=weight,
        bias=bias,
        lines=call.scratch["taps"],
        lanes=lanes,
        images=n,
        channels=c,
        h=h,
        w=w,
        high=high,
        wide=wide,
        rows=rows,
        columns=columns,
        down=down,
        across=across,
        above=above,
        before=before,
        tall=tall,
        broad=broad,
    )
