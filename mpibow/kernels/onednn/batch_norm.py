"""Batch normalisation by oneDNN, with the relu and the sum behind it where they were fused with it."""

import math
from ctypes import c_float, c_int, c_uint
from dataclasses import replace

import numpy as np

from mpibow.graph import FLOAT, Buffers, Call, Formats, Kernel, Run, Shapes, Tags, as_given
from mpibow.kernels.compiled import batch_norm as blocks
from mpibow.kernels.compiled.batch_norm import parts
from mpibow.kernels.compiled.command import together
from mpibow.kernels.compiled.elementwise import add_relu, masked
from mpibow.kernels.compiled.native import Floats, Single, native
from mpibow.kernels.isa import ISA
from mpibow.kernels.onednn import capi as dnn
from mpibow.ops import KERNELS, BatchNorm
from mpibow.ops.batch_norm import check_values
from mpibow.ops.fused import NormAddRelu

from .library import Library
from .primitives import Halves, either, once

GLOBAL, SCALE, SHIFT, RELU = 1, 2, 4, 8  # dnnl_normalization_flags_t
Norm = BatchNorm | NormAddRelu


def batch_norm(library: Library) -> Kernel:
    """Of BatchNorm and NormAddRelu.

    Learners of a rank that share statistics in training do so by NumPy's kernel; no relu is fused with that. Images in
    whole blocks of 16 channels are normalised by our own kernel in training, unless the norm is frozen.
    """

    def of_rank(op: Norm, shapes: Shapes) -> bool:
        return shapes.training and parts(op)[0].sync == "rank"

    def in_blocks(op: Norm, shapes: Shapes) -> bool:
        return library.wide and blocks.fits(shapes) and not parts(op)[0].frozen

    ours = Kernel(blocks.forward, blocks.backward, blocks.buffers, as_given)
    return either(of_rank, KERNELS[BatchNorm], either(in_blocks, ours, _by_primitives(library)))


@native
def _follow(
    mean: Floats, variance: Floats, running_mean: Floats, running_variance: Floats, take: Single, unbiased: Single
) -> None:
    """The running statistics move by their share `take`, the variance, which is unbiased there, by `unbiased`."""
    keep = np.float32(1) - take
    for i in range(len(mean)):
        running_mean[i] = keep * running_mean[i] + take * mean[i]
        running_variance[i] = keep * running_variance[i] + unbiased * variance[i]


def _by_primitives(library: Library) -> Kernel:
    """A relu without a sum is the primitive's own; the sum is one more pass."""

    @once
    def halves_of(op: Norm, shapes: Shapes) -> Halves:
        norm, added, relu = parts(op)
        flags = SCALE | SHIFT | (RELU if relu and not added else 0)
        flags |= GLOBAL if norm.frozen or not shapes.training else 0
        x = library.descriptor(shapes.y, shapes.formats.y)
        settings = (c_float(norm.epsilon), c_uint(flags))
        backward = c_int(dnn.BACKWARD), x, x, x, *settings
        return library.halves(shapes, "batch_normalization", (x, x, *settings), backward)

    def buffers(op: Norm, shapes: Shapes) -> Buffers:
        halves = halves_of(op, shapes)
        norm, added, _ = parts(op)
        if not shapes.training:
            return halves.buffers
        saved = dict(halves.buffers.saved)
        backward = dict(halves.buffers.backward)
        if not norm.frozen:
            check_values(shapes.y)
            saved |= dict.fromkeys(("mean", "variance"), ((shapes.y[1],), FLOAT))
        image = ((halves.forward.layout(dnn.DST).bytes // 4,), FLOAT)
        if added and 1 not in shapes.wanted:
            backward["dx1"] = image
        if 0 not in shapes.wanted:
            backward["dx"] = image
        return replace(halves.buffers, saved=saved, backward=backward)

    def forward(call: Call) -> Run:
        norm, added, _ = parts(call.op)
        runs = [halves_of(call.op, call.shapes).forward.on(call, {dnn.SHIFT: call.w["bias"]})]
        if "mean" in call.saved:
            values = math.prod(call.shapes.y) // call.shapes.y[1]
            running = {f"running_{key}": array for key, array in call.statistics.items()}
            unbiased = norm.momentum * (values / (values - 1))
            runs.append(_follow.on(call, take=norm.momentum, unbiased=unbiased, **running))
        if added:
            runs.append(add_relu.command(x=call.y, x1=call.x[1], y=call.y))
        return together(runs)

    def backward(call: Call) -> Run:
        primitive = halves_of(call.op, call.shapes).backward
        assert primitive is not None
        if not parts(call.op)[1]:
            return primitive.on(call)
        dz = call.arrays["dx1"]  # the summand's gradient
        return together([masked.command(dy=call.dy, y=call.y, dx=dz), primitive.on(call, dy=dz)])

    def formats(op: Norm, shapes: Shapes, given: Tags) -> Formats:
        """Everything in the first input's layout, but AVX2 has no code for blocks of 16 channels."""
        tag = "aBcd8b" if given[0] == "aBcd16b" and ISA == "AVX2" else given[0]
        return as_given(op, shapes, (tag, *given[1:]))

    return Kernel(forward, backward, buffers, formats, lambda op, shapes: halves_of(op, shapes).slow)
