"""Convolutions of 3x3 on low images, of up to 8 outputs a row, whose weights are much of what a pass reads.

C and K count blocks of 16 channels: x (n, C, h, w, 16), w (K, C, 3, 3, 16 of C, 16 of K), y (n, K, h', w', 16), padding
1, h = stride h', w = stride w'. Blocks of weights are read once, two at a time, and stay in a core's first cache for
all images. A strip is a row of outputs, of one image or, with AVX-512, of so many that it has 8: its sums, for two
blocks of channels, stay in registers. Taps that read padding are left out.
"""

import math
from typing import Literal, get_args

from mpibow.graph import Buffers, Call, Kernel, Run, Shapes
from mpibow.kernels.compiled.command import Command, together
from mpibow.kernels.compiled.native import Address, floats, native
from mpibow.kernels.compiled.vectors import BLOCK, LINE, turn
from mpibow.kernels.isa import ISA
from mpibow.ops.fused import ConvRelu

from . import winograd
from .conv import Conv, before_relu, floats_of, in_blocks, plain
from .conv_transpose import each_channel
from .strips import STRIP, add_taps, outer_products
from .winograd.tiles import fetch

Wide = Literal[1, 2, 3, 4, 5, 6, 7, 8]  # outputs of a row
Stride = Literal[1, 2]
TAPS = 9 * BLOCK  # bytes of all taps of 16 x 16 channels


@native
def convolve(
    x: Address,
    weight: Address,
    y: Address,
    relu: int,
    zeros: Address,
    n: int,
    c: int,
    k: int,
    high: int,
    wide: Wide,
    stride: Stride,
    bias: Address = None,
) -> None:
    """y = the convolution of x (n, 16 c, stride high, stride wide), with a relu if `relu`; y has 16 k channels."""
    floats(zeros, 32)[:] = 0
    row, target = stride * wide * LINE, wide * LINE  # bytes of a row of x, and of y
    plane = stride * high * row
    place = high * target
    for block in range(0, k, 2):
        for part in range(c):
            taps = weight + (block * c + part) * TAPS
            for image in range(0, n, max(1, STRIP // wide)):
                source = x + (image * c + part) * plane
                to = y + (image * k + block) * place
                for i in range(high):
                    r = max(0, 1 - stride * i)
                    rows = min(3, stride * (high - i) + 1) - r
                    add_taps(
                        wide,
                        stride,
                        0,
                        source + (stride * i + r - 1) * row,
                        taps + 3 * r * BLOCK,
                        to + i * target,
                        rows,
                        row,
                        3 * BLOCK,
                        c * TAPS,
                        c * plane,
                        k * place,
                        place,
                        part == 0,
                        bias + block * LINE if bias else zeros,
                        relu if part == c - 1 else 0,
                        0 if image else (TAPS if part < c - 1 else (c + 1) * TAPS),
                    )


@native
def spread(
    dy: Address,
    weight: Address,
    dx: Address,
    taps: Address,
    n: int,
    c: int,
    k: int,
    high: int,
    wide: Wide,
    stride: Stride,
) -> None:
    """dx = the gradient of the inputs; taps is scratch, of two blocks."""
    zeros = taps + 2 * TAPS
    floats(zeros, 32)[:] = 0
    row = wide * LINE
    target = stride * wide * LINE
    plane = high * row
    place = stride * high * target
    for part in range(0, c, 2):
        for block in range(k):
            for tap in range(2 * 9):
                here = weight + (block * c + part) * TAPS + tap * BLOCK
                fetch(here + c * TAPS)
                fetch(here + c * TAPS + BLOCK // 2)
                turn(here, taps + tap * BLOCK)
            for image in range(0, n, max(1, STRIP // (stride * wide))):
                source = dy + (image * k + block) * plane
                to = dx + (image * c + part) * place
                for i in range(stride * high):
                    r = (i + 1) % stride
                    while (i + 1 - r) // stride >= high:
                        r += stride
                    rows = (min(2, i + 1) - r) // stride + 1
                    add_taps(
                        wide,
                        stride,
                        1,
                        source + (i + 1 - r) // stride * row,
                        taps + 3 * r * BLOCK,
                        to + i * target,
                        rows,
                        -row,
                        3 * stride * BLOCK,
                        TAPS,
                        k * plane,
                        c * place,
                        place,
                        block == 0,
                        zeros,
                        0,
                        0,
                    )


@native
def differentiate(
    x: Address, dy: Address, dweight: Address, n: int, c: int, k: int, high: int, wide: Wide, stride: Stride
) -> None:
    """dweight = the gradient of the weights."""
    row = stride * wide * LINE
    target = wide * LINE
    plane = stride * high * row
    place = high * target
    for block in range(0, k, 2):
        for part in range(c):
            for r in range(3):
                first = 1 if r == 0 else 0
                rows = min(high, (stride * high - r) // stride + 1) - first
                outer_products(
                    wide,
                    stride,
                    x + part * plane + (stride * first + r - 1) * row,
                    dy + block * place + first * target,
                    dweight + (block * c + part) * TAPS + 3 * r * BLOCK,
                    n,
                    c * plane,
                    k * place,
                    rows,
                    stride * row,
                    target,
                    place,
                    c * TAPS,
                )


def fits(op: Conv, shapes: Shapes) -> bool:
    """Whether this is faster than oneDNN's convolution and Winograd's, as measured, and strips are whole. With AVX-512
    only rows of 2 and 4 were."""
    n, c, *size = shapes.x[0]
    k, high, wide = shapes.y[1:]
    op = plain(op)
    simple = (op.kernel, op.padding, op.dilation, op.groups) == ((3, 3), (1, 1), (1, 1), 1)
    even = any(op.stride == (s, s) and size == [s * high, s * wide] for s in get_args(Stride))
    fast = wide <= 8 and not winograd.fits(op, shapes)
    if ISA == "AVX-512":
        fast = fast and wide in (2, 4) and n % (STRIP // wide) == 0
    elif wide <= 6 or (winograd.form(op, shapes) == 23 and (wide < 8 or n * high * wide < max(c, k))):
        fast = wide <= 8
    return simple and even and fast and c % 32 == k % 32 == 0


def _extents(op: Conv, shapes: Shapes) -> dict[str, int]:
    conv = plain(op)
    n, c = shapes.x[0][:2]
    k, high, wide = shapes.y[1:]
    return {"n": n, "c": c // 16, "k": k // 16, "high": high, "wide": wide, "stride": conv.stride[0]}


def buffers(op: Conv, shapes: Shapes) -> Buffers:
    forward = floats_of(zeros=32)
    if not shapes.training:
        return Buffers(forward=forward)
    dz = floats_of(dz=math.prod(shapes.y)) if isinstance(op, ConvRelu) else {}
    return Buffers(forward=forward, backward={**floats_of(taps=2 * TAPS // 4 + 32), **dz})


def forward(call: Call) -> Command:
    return convolve.on(call, relu=isinstance(call.op, ConvRelu), **_extents(call.op, call.shapes))


def backward(call: Call) -> Run:
    extents = _extents(call.op, call.shapes)
    dy, runs = before_relu(call)
    if call.dw:
        runs.append(differentiate.on(call, dy=dy, **extents))
    if "bias" in call.dw:
        runs.append(each_channel(call, dy, call.dw["bias"], back=True))
    if call.dx[0] is not None:
        runs.append(spread.on(call, dy=dy, **extents))
    return together(runs)


KERNEL = Kernel(forward, backward, buffers, in_blocks)
