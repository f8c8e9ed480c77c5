"""Winograd's F(2x2, 3x3) for convolutions 3x3 (Lavin & Gray, arXiv:1509.09308): 4 products instead of 9.

Vectors are of 16 channels. Four tiles of 2x2 outputs side by side are a group; rows and columns are those of the tiles
of 4x4 that they come from:

    U (K / 16, row, C, column, 16)            G g G^T of the weights
    V (row, C / 16, group, tile, column, 16)  B^T d B of the inputs
    D (row, K / 16, group, tile, column, 16)  A dy A^T of the gradients

y = A^T (U V) A, summed over C, is made group by group, so that V stays in the first cache. The weights' gradient is
G^T (V D) G, summed over tiles: some groups at a time, so that the sums are seldom read and written.
"""

from __future__ import annotations

import math

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes, Spec
from mpibow.kernels.compiled.command import Command, command, together
from mpibow.kernels.compiled.elementwise import clipped, masked
from mpibow.kernels.onednn.winograd.loops import STRIP, bias_gradient, convolve, differentiate, finish
from mpibow.kernels.onednn.winograd.tiles import BLOCK
from mpibow.ops import Conv2d
from mpibow.ops.fused import ConvRelu

FORMATS = Formats(("aBcd16b",), "aBcd16b", {"weight": "ABcd16b16a"})


def fits(op: Conv2d, shapes: Shapes) -> bool:
    """Whether this is faster than oneDNN's convolution, as measured: enough tiles must share the weights' transform."""
    n, c, h, w = shapes.x[0]
    plain = (op.kernel, op.stride, op.padding, op.dilation) == ((3, 3), (1, 1), (1, 1), (1, 1))
    whole = c % 16 == op.channels % 16 == h % 2 == w % 8 == 0
    return plain and whole and op.groups == 1 and max(c, op.channels) <= 256 and n * h * w >= 64


def _extents(shapes: Shapes) -> tuple[int, int, int, int, int]:
    n, c, h, w = shapes.x[0]
    return n, c // 16, shapes.y[1] // 16, h, w


def buffers(op: Conv2d | ConvRelu, shapes: Shapes) -> Buffers:
    n, c, k, h, w = _extents(shapes)
    u, row = (c * k * 16 * BLOCK // 4,), BLOCK // 4
    forward: dict[str, Spec] = {"u": (u, FLOAT), "v": ((c * 4 * row,), FLOAT), "m": ((2 * row,), FLOAT)}
    if not shapes.training:
        return Buffers(forward=forward)
    v, d = (STRIP * c * 4 * row,), (STRIP * k * 4 * row,)
    backward: dict[str, Spec] = {"u": (u, FLOAT), "v": (v, FLOAT), "d": (d, FLOAT), "m": ((9 * row,), FLOAT)}
    if isinstance(op, ConvRelu):
        backward["dz"] = ((n * k * 16 * h * w,), FLOAT)
    return Buffers(forward=forward, backward=backward)


def forward(call: Call) -> Run:
    u, v, m = (call.scratch[key] for key in "uvm")
    n, c, k, h, w = _extents(call.shapes)
    relu, bias = isinstance(call.op, ConvRelu), call.w.get("bias")
    runs = [command(convolve, call.x[0], call.w["weight"], call.y, u, v, m, n, c, k, h, w, 0)]
    if bias is not None:
        runs.append(command(finish, call.y, bias, n, k, 16 * h * w, relu))
    elif relu:
        runs.append(command(clipped, call.y, call.y, call.y.size, math.inf))
    return together(runs)


def backward(call: Call) -> Run:
    n, c, k, h, w = _extents(call.shapes)
    u, v, d, m = (call.scratch[key] for key in "uvdm")
    runs, dy = list[Command](), call.dy
    if isinstance(call.op, ConvRelu):
        dy = call.scratch["dz"]
        runs.append(command(masked, call.dy, call.y, dy, dy.size))
    if "bias" in call.dw:
        runs.append(command(bias_gradient, dy, call.dw["bias"], n, k, 16 * h * w))
    runs.append(command(differentiate, call.x[0], dy, call.dw["weight"], v, d, u, n, c, k, h, w))
    if call.dx[0] is not None:
        runs.append(command(convolve, dy, call.w["weight"], call.dx[0], u, d, m, n, k, c, h, w, 1))
    return together(runs)
