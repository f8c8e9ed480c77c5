"""Transposed convolution: the gradients of a convolution by oneDNN, in the layouts that it chooses, and a bias.

The convolution takes y to x. Its gradient by its input makes y of x, and the convolution itself makes dx of dy.
"""

from dataclasses import replace
from math import prod

import numpy as np

from mpibow.graph import Array, Arrays, Buffers, Call, Formats, Kernel, Run, Shapes, Tags
from mpibow.graph.formats import canonical, physical
from mpibow.kernels.compiled.command import Command, together
from mpibow.kernels.compiled.native import Address, Back, floats, native, row_at
from mpibow.ops import Conv2d, ConvTranspose2d

from .conv import Convolution
from .library import Library


def transposed(library: Library) -> Kernel:
    convolution = Convolution(library)

    def formats(op: ConvTranspose2d, shapes: Shapes, given: Tags) -> Formats:
        found = convolution.formats(*_other_way(op, shapes), given)
        return Formats((found.y,), found.x[0], found.back, found.w, found.dw)

    def buffers(op: ConvTranspose2d, shapes: Shapes) -> Buffers:
        found = convolution.buffers(*_other_way(op, shapes))
        there = dict(found.forward)
        back = dict(found.backward)
        gradient = {key: back.pop(key) for key in ("dweight",) if key in back}
        if not shapes.training:
            return Buffers(forward=back)
        scratch = max(there["scratch"], back["scratch"], key=lambda spec: prod(spec[0]))
        return Buffers(forward=back, backward={**back, **there, **gradient, "scratch": scratch})

    def forward(call: Call) -> Run:
        x = call.x0
        y = call.y
        runs = convolution.of_inputs(_call(call, x=(y,), y=x, dx=(y,)), x)
        if "bias" in call.w:
            runs.append(each_channel(call, y, call.w["bias"]))
        return together(runs)

    def backward(call: Call) -> Run:
        x = call.x0
        dy = call.dy
        dx = call.dx[0]
        runs = convolution.of_weights(_call(call, x=(dy,), y=x, dx=(None,)), x) if call.dw else []
        if "bias" in call.dw:
            runs.append(each_channel(call, dy, call.dw["bias"], back=True))
        if dx is not None:
            runs.append(convolution.forward(_call(call, x=(dy,), y=dx, dx=(None,))))
        return together(runs)

    return Kernel(
        forward,
        backward,
        buffers,
        formats,
        lambda op, shapes: convolution.slow(*_other_way(op, shapes)),
        inputs_alone=True,
    )


def _other_way(op: ConvTranspose2d, shapes: Shapes) -> tuple[Conv2d, Shapes]:
    """The convolution from y to x."""
    conv = Conv2d(
        shapes.x[0][1],
        op.kernel,
        op.stride,
        op.padding,
        bias=False,
        initial=op.initial,
        groups=op.groups,
        dilation=op.dilation,
    )
    return conv, Shapes((shapes.y,), shapes.x[0], training=True, wanted=(0,))


def _call(call: Call, x: Arrays, y: Array, dx: tuple[Array | None, ...]) -> Call:
    """A call of that convolution, with its weight alone."""
    conv, shapes = _other_way(call.op, call.shapes)
    w, dw = ({key: each[key] for key in each if key == "weight"} for each in (call.w, call.dw))
    return replace(call, op=conv, shapes=shapes, x=x, y=y, dx=dx, w=w, dw=dw)


def each_channel(call: Call, images: Array, channels: Array, *, back: bool = False) -> Command:
    """images += channels, a bias; or, if `back`, channels = the sums of images."""
    n, c, h, w = call.shapes.y
    tag = call.shapes.formats.y
    lanes = 1 if tag == canonical(call.shapes.y) else physical(tag, call.shapes.y)[-1]
    return biased.command(back=back, images=images, channels=channels, n=n, c=c, pixels=h * w, lanes=lanes)


@native
def biased(back: Back, images: Address, channels: Address, n: int, c: int, pixels: int, lanes: int) -> None:
    """As `each_channel`. images lie in blocks of so many channels, 1 where canonical; padding stays 0."""
    blocks = (c + lanes - 1) // lanes
    if back:
        floats(channels, c)[:] = 0
    for each in range(n * blocks):
        first = each % blocks * lanes
        own = min(lanes, c - first)
        x = row_at(images, each, pixels * lanes)
        line = floats(channels + 4 * first, own)
        if lanes == 1:
            if back:
                total = np.float32(0)
                for i in range(pixels):
                    total += x[i]
                line[0] += total
            else:
                for i in range(pixels):
                    x[i] += line[0]
        elif own == 16 and lanes == 16:
            for i in range(pixels):
                for j in range(16):
                    if back:
                        line[j] += x[16 * i + j]
                    else:
                        x[16 * i + j] += line[j]
        else:
            for i in range(pixels):
                for j in range(own):
                    if back:
                        line[j] += x[lanes * i + j]
                    else:
                        x[lanes * i + j] += line[j]
