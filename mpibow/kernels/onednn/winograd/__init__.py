"""Winograd's F(2x2, 3x3), F(4x4, 3x3) and F(2x2, 5x5) for convolutions (Lavin & Gray, arXiv:1509.09308): 4, 2.25 and 9
products an output instead of 9, 9 and 25.

Vectors are of 16 channels. Four tiles are a group: side by side those of 2x2 outputs, two above two those of 4x4. Rows
and columns are those of the tiles of 4x4 or 6x6 inputs that they come from:

    U (K / 16, row, C, column, 16)            G g G^T of the weights
    V (row, C / 16, group, tile, column, 16)  B^T d B of the inputs
    D (row, K / 16, group, tile, column, 16)  A dy A^T of the gradients

y = A^T (U V) A, summed over C, is computed of some groups at a time, so that U is seldom read. The gradient of the
inputs is the same formula of dy where padding keeps the size. Without padding that would take more tiles: there it is
the adjoint, B (U D) B^T summed over K, of tiles that overlap. The weights' gradient is G^T (V D) G, summed over tiles:
some groups at a time, so that the sums are seldom read and written.
"""

import math

from mpibow.graph import Buffers, Call, Kernel, Run, Shapes
from mpibow.kernels.compiled.command import Command, together
from mpibow.kernels.compiled.native import Arguments
from mpibow.kernels.onednn.conv import Conv, before_relu, floats_of, in_blocks, plain
from mpibow.ops import Conv2d
from mpibow.ops.fused import ConvRelu

from .loops import STRIP, convolve, differentiate, scatter


def fits(op: Conv, shapes: Shapes) -> bool:
    """Whether this is faster than oneDNN's convolution, as measured: enough tiles must share the weights' transform.
    5x5 needs more tiles the more channels there are. 3x3 needs more beyond 256 channels, at least 256 on both sides.
    oneDNN leaves padding out, which is most of the input of 5x5 on low images.
    """
    n, c = shapes.x[0][:2]
    k, high, wide = shapes.y[1:]
    op = plain(op)
    simple = (op.stride, op.dilation, op.groups) == ((1, 1), (1, 1), 1)
    simple = simple and c % 16 == k % 16 == 0 and max(c, k) <= 512
    outputs = n * high * wide
    window = (op.kernel, op.padding)
    whole = high % 2 == wide % 8 == 0
    if window == ((3, 3), (1, 1)):
        many = outputs >= 256 and min(c, k) >= 256 if max(c, k) > 256 else outputs >= 64
        return simple and many and (whole or min(_products(shapes).values()) < 5)
    roomy = window == ((5, 5), (0, 0)) or (window == ((5, 5), (2, 2)) and high >= 6)
    return simple and whole and roomy and max(c, k) <= 256 and outputs >= max(64, c // 2, k // 2)


def _products(shapes: Shapes) -> dict[int, float]:
    """An output's products by form of 3x3, with those of groups that extend beyond the image."""
    high, wide = shapes.y[2:]
    across = -(-wide // 8) * 8 / wide
    return {23: 4 * -(-high // 2) * 2 / high * across, 43: 2.25 * -(-high // 8) * 8 / high * across}


def form(op: Conv2d, shapes: Shapes) -> int:
    """Of 3x3 that of fewer products, if there are so many tiles that transforms of the weights to 6x6 pay off."""
    n, c = shapes.x[0][:2]
    k, high, wide = shapes.y[1:]
    if op.kernel == (5, 5):
        return 25
    products = _products(shapes)
    return 43 if products[43] < products[23] and n * high * wide >= 2 * max(c, k) else 23


def _extents(op: Conv, shapes: Shapes) -> Arguments:
    conv = plain(op)
    n, c, h, w = shapes.x[0]
    return {
        "images": n,
        "c": c // 16,
        "k": conv.channels // 16,
        "h": h,
        "wide": w,
        "form": form(conv, shapes),
        "padding": conv.padding[0],
    }


def buffers(op: Conv, shapes: Shapes) -> Buffers:
    extents = _extents(op, shapes)
    c = extents["c"]
    k = extents["k"]
    outputs, taps = divmod(extents["form"], 10)
    size = outputs + taps - 1
    line = 16
    group = 4 * size * size * line
    sums = STRIP * 4 * outputs * size * line
    common = floats_of(u=c * k * size * size * 16 * line, v=STRIP * c * group, edge=12 * 10 * line)
    forward = {**common, **floats_of(m=sums + line)}
    if not shapes.training:
        return Buffers(forward=forward)
    backward = floats_of(d=STRIP * k * group, m=max(taps * taps * 16 * line, sums + line))
    dz = floats_of(dz=math.prod(shapes.y)) if isinstance(op, ConvRelu) else {}
    return Buffers(forward=forward, backward={**common, **backward, **dz})


def forward(call: Call) -> Command:
    return convolve.on(call, relu=isinstance(call.op, ConvRelu), back=False, **_extents(call.op, call.shapes))


def backward(call: Call) -> Run:
    extents = _extents(call.op, call.shapes)
    dy, runs = before_relu(call)
    if call.dw:
        runs.append(differentiate.on(call, dy=dy, m=call.scratch["u"], **extents))
    dx = call.dx[0]
    turned = {**extents, "c": extents["k"], "k": extents["c"]}
    if dx is not None and extents["padding"]:
        back = convolve.on(call, x=dy, y=dx, bias=None, relu=False, v=call.scratch["d"], back=True, **turned)
        runs.append(back)
    elif dx is not None:
        del extents["padding"]
        runs.append(scatter.on(call, dy=dy, **extents))
    return together(runs)


KERNEL = Kernel(forward, backward, buffers, in_blocks)
