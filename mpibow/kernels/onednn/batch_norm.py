"""Batch normalisation by oneDNN, with the relu and the sum behind it where they were fused with it."""

from __future__ import annotations

import math
from ctypes import c_float, c_int, c_uint

import numpy as np

from mpibow.graph.graph import FLOAT, Shape
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes, Spec, canonical_formats
from mpibow.kernels.compiled import batch_norm as blocks
from mpibow.kernels.compiled.arguments import Floats, Single
from mpibow.kernels.compiled.batch_norm import parts
from mpibow.kernels.compiled.command import Command, native, together
from mpibow.kernels.compiled.elementwise import add_relu, masked
from mpibow.kernels.onednn import capi as dnn
from mpibow.kernels.onednn.library import Library
from mpibow.kernels.onednn.primitives import Primitive, slow
from mpibow.ops import BatchNorm, norm_of_rank
from mpibow.ops.batch_norm import check_values
from mpibow.ops.fused import NormAddRelu

GLOBAL, SCALE, SHIFT, RELU = 1, 2, 4, 8  # dnnl_normalization_flags_t


@native
def _follow(
    mean: Floats, variance: Floats, running_mean: Floats, running_variance: Floats, take: Single, unbiased: Single
) -> None:
    """The running statistics move by their share `take`, the variance, which is unbiased there, by `unbiased`."""
    keep = np.float32(1) - take
    for i in range(len(mean)):
        running_mean[i] = keep * running_mean[i] + take * mean[i]
        running_variance[i] = keep * running_variance[i] + unbiased * variance[i]


class BatchNormalisation:
    """BatchNorm and NormAddRelu. A relu without a sum is the primitive's own; the sum is one more pass.

    Images in whole blocks of 16 channels are normalised by our own kernel in training, unless the norm is frozen.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self._made: dict[tuple[BatchNorm | NormAddRelu, Shape, str, bool], tuple[Primitive, Primitive | None]] = {}

    @staticmethod
    def _of_rank(op: BatchNorm | NormAddRelu, shapes: Shapes) -> bool:
        """Whether learners of a rank share statistics in training, by NumPy's kernel; no relu is fused with that."""
        return shapes.training and parts(op)[0].sync == "rank"

    def _blocks(self, op: BatchNorm | NormAddRelu, shapes: Shapes) -> bool:
        return self.library.wide and blocks.fits(shapes) and not parts(op)[0].frozen

    def _pair(self, op: BatchNorm | NormAddRelu, shapes: Shapes) -> tuple[Primitive, Primitive | None]:
        key = (op, shapes.y, shapes.formats.y, shapes.training)
        if key not in self._made:
            self._made[key] = self._make(op, shapes)
        return self._made[key]

    def _make(self, op: BatchNorm | NormAddRelu, shapes: Shapes) -> tuple[Primitive, Primitive | None]:
        norm, added, relu = parts(op)
        x, epsilon, make = self.library.descriptor(shapes.y, shapes.formats.y), norm.epsilon, self.library.primitive
        flags = SCALE | SHIFT | (RELU if relu and not added else 0)
        flags |= GLOBAL if norm.frozen or not shapes.training else 0
        settings = c_float(epsilon), c_uint(flags)
        kind = c_int(dnn.TRAINING if shapes.training else dnn.INFERENCE)
        forward = make("batch_normalization_forward", kind, x, x, *settings)
        if not shapes.training:
            return forward, None
        return forward, make("batch_normalization_backward", c_int(dnn.BACKWARD), x, x, x, *settings, forward)

    def slow(self, op: BatchNorm | NormAddRelu, shapes: Shapes) -> tuple[str, ...]:
        return () if self._blocks(op, shapes) or self._of_rank(op, shapes) else slow(*self._pair(op, shapes))

    def formats(self, op: BatchNorm | NormAddRelu, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        if self._of_rank(op, shapes):
            return canonical_formats(op, shapes, given)
        return Formats((given[0],) * len(shapes.x), given[0])

    def buffers(self, op: BatchNorm | NormAddRelu, shapes: Shapes) -> Buffers:
        if self._of_rank(op, shapes):
            return norm_of_rank.buffers(shapes.y)
        if self._blocks(op, shapes):
            return blocks.buffers(op, shapes)
        forward, backward = self._pair(op, shapes)
        scratch: dict[str, Spec] = {"scratch": ((forward.scratch,), "uint8")}
        if backward is None:
            return Buffers(forward=scratch)
        norm, added, relu = parts(op)
        saved: dict[str, Spec] = {}
        if not norm.frozen:
            check_values(shapes.y)
            saved = dict.fromkeys(("mean", "variance"), ((shapes.y[1],), FLOAT))
        if relu and not added:
            saved["mask"] = ((forward.layout(dnn.WORKSPACE).bytes,), "uint8")
        back: dict[str, Spec] = {"scratch": ((backward.scratch,), "uint8")}
        image: Spec = ((forward.layout(dnn.DST).bytes // 4,), FLOAT)
        if added and 1 not in shapes.wanted:
            back["dz"] = image
        if 0 not in shapes.wanted:
            back["dx"] = image
        return Buffers(saved=saved, forward=scratch, backward=back)

    def forward(self, call: Call) -> Run:
        if self._of_rank(call.op, call.shapes):
            return norm_of_rank.forward(call)
        if self._blocks(call.op, call.shapes):
            return blocks.forward(call)
        norm, added, _ = parts(call.op)
        forward, _ = self._pair(call.op, call.shapes)
        mean, variance = call.saved.get("mean"), call.saved.get("variance")
        running = call.statistics["mean"], call.statistics["variance"]
        arrays = {
            dnn.SRC: call.x[0], dnn.DST: call.y, dnn.SCALE: call.w["weight"], dnn.SHIFT: call.w["bias"],
            dnn.MEAN: running[0], dnn.VARIANCE: running[1], dnn.SCRATCHPAD: call.scratch["scratch"],
        }  # fmt: skip
        runs: list[Command] = []
        if mean is not None and variance is not None:
            arrays |= {dnn.MEAN: mean, dnn.VARIANCE: variance}
            values = math.prod(call.shapes.y) // mean.size
            bias = values / (values - 1)
            share = {"take": norm.momentum, "unbiased": norm.momentum * bias}
            running_mean, running_variance = running
            runs.append(
                _follow.command(
                    mean=mean, variance=variance, running_mean=running_mean, running_variance=running_variance, **share
                )
            )
        if "mask" in call.saved:
            arrays[dnn.WORKSPACE] = call.saved["mask"]
        if added:
            runs.append(add_relu.command(x0=call.y, x1=call.x[1], y=call.y))
        return together([forward.command(arrays), *runs])

    def backward(self, call: Call) -> Run:
        if self._of_rank(call.op, call.shapes):
            return norm_of_rank.backward(call)
        if self._blocks(call.op, call.shapes):
            return blocks.backward(call)
        norm, added, _ = parts(call.op)
        statistics = call.statistics if norm.frozen else call.saved
        _, backward = self._pair(call.op, call.shapes)
        assert backward is not None
        dy, runs = call.dy, list[Command]()
        if added:
            dz = call.dx[1] if call.dx[1] is not None else call.scratch["dz"]
            runs.append(masked.command(dy=dy, y=call.y, dx=dz))
            dy = dz
        arrays = {
            dnn.SRC: call.x[0], dnn.DIFF_DST: dy, dnn.SCALE: call.w["weight"], dnn.MEAN: statistics["mean"],
            dnn.VARIANCE: statistics["variance"], dnn.DIFF_SCALE: call.dw["weight"], dnn.DIFF_SHIFT: call.dw["bias"],
            dnn.DIFF_SRC: call.dx[0] if call.dx[0] is not None else call.scratch["dx"],
            dnn.SCRATCHPAD: call.scratch["scratch"],
        }  # fmt: skip
        if "mask" in call.saved:
            arrays[dnn.WORKSPACE] = call.saved["mask"]
        return together([*runs, backward.command(arrays)])
