"""Convolutions of 3x3 on low images, of 2 or 4 outputs a row, whose weights are most of what a pass reads.

C and K count blocks of 16 channels: x (n, C, h, w, 16), w (K, C, 3, 3, 16 of C, 16 of K), y (n, K, h', w', 16), padding
1, h = stride h', w = stride w'. Blocks of weights are read once, two at a time, and stay in a core's first cache for
all images. A strip is a row of so many images that it has 8 outputs: its sums, for two blocks of channels, stay in
registers. Taps that read padding are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes, Spec
from mpibow.kernels.compiled.arguments import Address
from mpibow.kernels.compiled.command import Command, floats, native, together
from mpibow.kernels.compiled.elementwise import masked
from mpibow.kernels.compiled.vectors import F32, I64, LINE, VECTOR, ZERO, at, columns_of, emitted, load, splat, store
from mpibow.kernels.onednn.conv_transpose import each_channel, sum_channels
from mpibow.ops import Conv2d
from mpibow.ops.fused import ConvRelu

FORMATS = Formats(("aBcd16b",), "aBcd16b", {"weight": "ABcd16b16a"})
BLOCK, TAPS = 16 * LINE, 9 * 16 * LINE  # bytes of 16 x 16 channels of a tap, and of all taps
STRIP = 8  # outputs
WIDTHS = (2, 4)  # of a row of y
STRIDES = (1, 2)


@dataclass(frozen=True)
class Row:
    """`wide` outputs. `back`: they are gradients of x, and the inputs are those of y."""

    wide: int
    stride: int
    back: bool

    @property
    def images(self) -> int:
        return STRIP // self.wide

    def inputs(self, tap: int) -> Iterator[tuple[int, int]]:
        """The outputs that this column of taps adds to, and the inputs' columns."""
        for j in range(self.wide):
            if not self.back:
                column, rest, width = self.stride * j + tap - 1, 0, self.stride * self.wide
            else:
                column, rest = divmod(j + 1 - tap, self.stride)
                width = self.wide // self.stride
            if not rest and 0 <= column < width:
                yield j, column


FORWARD = [Row(wide, stride, back=False) for wide in WIDTHS for stride in STRIDES]
BACK = [Row(stride * wide, stride, back=True) for wide in WIDTHS for stride in STRIDES]


def _multiply_add(b: Any, total: Any, x: Any, y: Any) -> None:
    """total += x y, as one instruction."""
    b.store(b.fadd(b.load(total), b.fmul(x, y, flags=("contract",)), flags=("contract",)), total)


def _scalar(b: Any, address: Any, offset: int) -> Any:
    return splat(b, b.load(at(b, address, offset, F32)))


def _for_row(b: Any, rows: Sequence[Row], wide: Any, stride: Any, generate: Callable[[Row], None]) -> None:
    """The code of the row that has these numbers."""
    for row in rows:
        same = b.and_(b.icmp_signed("==", wide, I64(row.wide)), b.icmp_signed("==", stride, I64(row.stride)))
        with b.if_then(same):
            generate(row)


@emitted
def add_taps(
    b: Any, wide: Any, stride: Any, back: Any, x: Any, w: Any, y: Any, rows: Any, up: Any, on: Any, other: Any,
    apart: Any, behind: Any, beside: Any, first: Any, bias: Any, relu: Any,
) -> None:  # fmt: skip
    """Adds to a strip at y of two blocks of channels what `rows` rows of taps at w make of one block of x.

    Bytes: `up` from a row of taps to the next in x, `on` in w; `other` from block to block in w, `beside` in y; `apart`
    from image to image in x, `behind` in y. If `first`, sums start with the lines at `bias`; they are not below 0 if
    `relu`."""

    def generate(strip: Row) -> None:
        images = [I64(i) for i in range(strip.images)]
        sources = [b.add(x, b.mul(i, apart)) for i in images]
        targets = [b.add(b.add(y, b.mul(i, behind)), b.mul(I64(block), beside)) for block in (0, 1) for i in images]
        places = [(t, j) for t in range(len(targets)) for j in range(strip.wide)]
        sums = {place: cgutils.alloca_once(b, VECTOR) for place in places}  # they become registers
        with b.if_else(b.icmp_signed("!=", first, I64(0))) as (begin, go_on):
            with begin:
                lines = [load(b, bias, block * LINE) for block in (0, 1)]
                for (t, _), each in sums.items():
                    b.store(lines[t // strip.images], each)
            with go_on:
                for (t, j), each in sums.items():
                    b.store(load(b, targets[t], j * LINE), each)
        with cgutils.for_range(b, rows) as row, cgutils.for_range(b, I64(16)) as channel:
            offset = b.add(b.mul(row.index, up), b.mul(channel.index, I64(4)))
            here = [b.add(source, offset) for source in sources]
            line = b.add(b.add(w, b.mul(row.index, on)), b.mul(channel.index, I64(LINE)))
            for tap in range(3):
                factors = [load(b, block, tap * BLOCK) for block in (line, b.add(line, other))]
                for i, image in enumerate(here):
                    for j, column in strip.inputs(tap):
                        value = _scalar(b, image, column * LINE)
                        for block, factor in enumerate(factors):
                            _multiply_add(b, sums[block * strip.images + i, j], value, factor)
        lowest = b.select(b.icmp_signed("!=", relu, I64(0)), ZERO, ir.Constant(VECTOR, [-math.inf] * 16))
        for (t, j), each in sums.items():
            total = b.load(each)
            store(b, b.select(b.fcmp_ordered("<", total, lowest), lowest, total), targets[t], j * LINE)

    with b.if_else(b.icmp_signed("!=", back, I64(0))) as (backward, forward):
        for branch, strips in ((backward, BACK), (forward, FORWARD)):
            with branch:
                _for_row(b, strips, wide, stride, generate)


@emitted
def outer_products(
    b: Any, wide: Any, stride: Any, x: Any, dy: Any, dw: Any, images: Any, apart: Any, behind: Any, rows: Any,
    pitch: Any, row: Any, beside: Any, other: Any,
) -> None:  # fmt: skip
    """dw of a row of taps, one block of C and two of K: sums over images and `rows` rows of outputs of x times dy.

    Bytes: from image to image `apart` in x, `behind` in dy; from row to row of outputs `pitch` in x, `row` in dy;
    from block to block of K `beside` in dy, `other` in dw."""

    def generate(strip: Row) -> None:
        for tap in range(3):
            with cgutils.for_range(b, I64(2)) as half:
                sums = [[cgutils.alloca_once(b, VECTOR) for _ in range(8)] for _ in (0, 1)]
                for each in (*sums[0], *sums[1]):
                    b.store(ZERO, each)
                with cgutils.for_range(b, images) as image, cgutils.for_range(b, rows) as at_row:
                    here = b.add(b.add(x, b.mul(half.index, I64(32))), b.mul(image.index, apart))
                    here = b.add(here, b.mul(at_row.index, pitch))
                    there = b.add(b.add(dy, b.mul(image.index, behind)), b.mul(at_row.index, row))
                    for j, column in strip.inputs(tap):
                        lines = [load(b, there, j * LINE), load(b, b.add(there, beside), j * LINE)]
                        for c in range(8):
                            value = _scalar(b, here, column * LINE + 4 * c)
                            for line, own in zip(lines, sums, strict=True):
                                _multiply_add(b, own[c], value, line)
                to = b.add(dw, b.mul(half.index, I64(BLOCK // 2)))
                for own, place in zip(sums, (to, b.add(to, other)), strict=True):
                    for c, each in enumerate(own):
                        store(b, b.load(each), place, tap * BLOCK + c * LINE)

    _for_row(b, FORWARD, wide, stride, generate)


@emitted
def turn(b: Any, source: Any, target: Any) -> None:
    """target (9, 16, 16): each block of source transposed."""
    with cgutils.for_range(b, I64(9)) as loop:
        offset = b.mul(loop.index, I64(BLOCK))
        here, there = b.add(source, offset), b.add(target, offset)
        lines = [load(b, here, i * LINE) for i in range(16)]
        for i, line in enumerate(columns_of(b, lines)):
            store(b, line, there, i * LINE)


@native
def convolve(
    x: Address, weight: Address, y: Address, relu: int, zeros: Address, n: int, c: int, k: int, high: int, wide: int,
    stride: int, bias: Address = None,
) -> None:  # fmt: skip
    """y = the convolution of x (n, 16 c, stride high, stride wide), with a relu if `relu`; y has 16 k channels."""
    floats(zeros, 32)[:] = 0
    row, target = stride * wide * LINE, wide * LINE  # bytes of a row of x, and of y
    plane, place = stride * high * row, high * target
    for block in range(0, k, 2):
        for part in range(c):
            taps = weight + (block * c + part) * TAPS
            for image in range(0, n, STRIP // wide):
                source, to = x + (image * c + part) * plane, y + (image * k + block) * place
                for i in range(high):
                    r = max(0, 1 - stride * i)
                    rows = min(3, stride * (high - i) + 1) - r
                    add_taps(
                        wide, stride, 0, source + (stride * i + r - 1) * row, taps + 3 * r * BLOCK, to + i * target,
                        rows, row, 3 * BLOCK, c * TAPS, c * plane, k * place, place, part == 0,
                        bias + block * LINE if bias else zeros, relu if part == c - 1 else 0,
                    )  # fmt: skip


@native
def spread(
    dy: Address, weight: Address, dx: Address, taps: Address, n: int, c: int, k: int, high: int, wide: int, stride: int
) -> None:
    """dx = the gradient of the inputs; taps is scratch, of two blocks."""
    zeros = taps + 2 * TAPS
    floats(zeros, 32)[:] = 0
    row, target, broad = wide * LINE, stride * wide * LINE, stride * wide
    plane, place = high * row, stride * high * target
    for part in range(0, c, 2):
        for block in range(k):
            for p in range(2):
                turn(weight + (block * c + part + p) * TAPS, taps + p * TAPS)
            for image in range(0, n, STRIP // broad):
                source, to = dy + (image * k + block) * plane, dx + (image * c + part) * place
                for i in range(stride * high):
                    r = (i + 1) % stride
                    while (i + 1 - r) // stride >= high:
                        r += stride
                    rows = (min(2, i + 1) - r) // stride + 1
                    add_taps(
                        broad, stride, 1, source + (i + 1 - r) // stride * row, taps + 3 * r * BLOCK, to + i * target,
                        rows, -row, 3 * stride * BLOCK, TAPS, k * plane, c * place, place, block == 0, zeros, 0,
                    )  # fmt: skip


@native
def differentiate(
    x: Address, dy: Address, dweight: Address, n: int, c: int, k: int, high: int, wide: int, stride: int
) -> None:
    """dweight = the gradient of the weights."""
    row, target = stride * wide * LINE, wide * LINE
    plane, place = stride * high * row, high * target
    for block in range(0, k, 2):
        for part in range(c):
            for r in range(3):
                first = 1 if r == 0 else 0
                rows = min(high, (stride * high - r) // stride + 1) - first
                outer_products(
                    wide, stride, x + part * plane + (stride * first + r - 1) * row,
                    dy + block * place + first * target, dweight + (block * c + part) * TAPS + 3 * r * BLOCK, n,
                    c * plane, k * place, rows, stride * row, target, place, c * TAPS,
                )  # fmt: skip


def fits(op: Conv2d, shapes: Shapes) -> bool:
    """Whether this is faster than oneDNN's convolution, as measured, and strips are whole."""
    (n, c, *size), (k, high, wide) = shapes.x[0], shapes.y[1:]
    plain = (op.kernel, op.padding, op.dilation, op.groups) == ((3, 3), (1, 1), (1, 1), 1)
    even = any(op.stride == (s, s) and size == [s * high, s * wide] for s in STRIDES)
    return plain and even and wide in WIDTHS and n % (STRIP // wide) == 0 and c % 32 == k % 32 == 0


def _extents(op: Conv2d | ConvRelu, shapes: Shapes) -> dict[str, int]:
    conv = op.conv if isinstance(op, ConvRelu) else op
    (n, c), (k, high, wide) = shapes.x[0][:2], shapes.y[1:]
    return {"n": n, "c": c // 16, "k": k // 16, "high": high, "wide": wide, "stride": conv.stride[0]}


def buffers(op: Conv2d | ConvRelu, shapes: Shapes) -> Buffers:
    forward: dict[str, Spec] = {"zeros": ((32,), FLOAT)}
    if not shapes.training:
        return Buffers(forward=forward)
    backward: dict[str, Spec] = {"taps": ((2 * TAPS // 4 + 32,), FLOAT)}
    if isinstance(op, ConvRelu):
        backward["dz"] = ((math.prod(shapes.y),), FLOAT)
    return Buffers(forward=forward, backward=backward)


def forward(call: Call) -> Command:
    return convolve.on(call, relu=isinstance(call.op, ConvRelu), **_extents(call.op, call.shapes))


def backward(call: Call) -> Run:
    extents, runs, dy = _extents(call.op, call.shapes), list[Command](), call.dy
    if isinstance(call.op, ConvRelu):
        dy = call.scratch["dz"]
        runs.append(masked.command(dy=call.dy, y=call.y, dx=dy))
    if call.dw:
        runs.append(differentiate.on(call, dy=dy, **extents))
    if "bias" in call.dw:
        runs.append(each_channel(sum_channels, call, dy, call.dw["bias"]))
    if call.dx[0] is not None:
        runs.append(spread.on(call, dy=dy, **extents))
    return together(runs)
