"""The dense layer: few rows by oneDNN's inner product, its weights' gradient as factors, many rows by own products."""

from __future__ import annotations

import re
from ctypes import c_int
from dataclasses import replace

from mpibow.graph.graph import Shape
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes, canonical_formats
from mpibow.graph.layout import LANES
from mpibow.kernels.compiled import dense
from mpibow.kernels.compiled.command import Command, together
from mpibow.kernels.compiled.factors import write_factors
from mpibow.kernels.onednn import capi as dnn
from mpibow.kernels.onednn.library import Library
from mpibow.kernels.onednn.primitives import Trio, slow
from mpibow.ops import Dense

TILES = f"AB16b{LANES}a"  # the layout of weights whose gradients may be kept as factors
SPARED = 4  # a gradient must have so many times the factors' size, else there is little to gain
MANY = 64  # rows from which on own products are as fast, and no weights are reordered for them


def _rank(op: Dense, shapes: Shapes) -> int:
    """The rank of the weights' gradient as factors: the batch, in whole fours; 0 where factors do not pay off."""
    batch, inputs = shapes.x[0]
    rank = -(-batch // 4) * 4
    fits = shapes.training and op.units % LANES == 0 and inputs % 16 == 0
    return rank if fits and SPARED * rank * (inputs + op.units) <= inputs * op.units else 0


def _many(op: Dense, shapes: Shapes) -> bool:
    x = shapes.x[0]
    return len(x) > 2 or (x[0] >= MANY and not _rank(op, shapes))


class InnerProduct:
    def __init__(self, library: Library) -> None:
        self.library = library
        self._made: dict[tuple[Dense, Shape, bool, bool], Trio] = {}

    def _trio(self, op: Dense, shapes: Shapes) -> Trio:
        key = (op, shapes.x[0], shapes.training, bool(shapes.wanted))
        if key not in self._made:
            self._made[key] = self._make(op, shapes)
            if _rank(op, shapes) and re.fullmatch(r"AB16b\d+a", self._made[key].weight):
                self._made[key] = self._make(op, shapes, TILES)
        return self._made[key]

    def _make(self, op: Dense, shapes: Shapes, tag: str = "any") -> Trio:
        layout, make = self.library.descriptor, self.library.primitive
        x, y, weight = layout(shapes.x[0], "ab"), layout(shapes.y, "ab"), layout((op.units, shapes.x[0][1]), tag)
        bias = layout((op.units,), "a") if op.bias else None
        kind = c_int(dnn.TRAINING if shapes.training else dnn.INFERENCE)
        forward = make("inner_product_forward", kind, x, weight, bias, y)
        if not shapes.training:
            return Trio(forward, None, None)
        data = make("inner_product_backward_data", x, weight, y, forward) if shapes.wanted else None
        return Trio(forward, data, make("inner_product_backward_weights", x, weight, bias, y, forward))

    def slow(self, op: Dense, shapes: Shapes) -> tuple[str, ...]:
        if _many(op, shapes):
            return ()
        trio = self._trio(op, shapes)
        return slow(trio.forward, trio.data, None if shapes.formats.factors else trio.weights)

    def formats(self, op: Dense, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        if _many(op, shapes):
            return canonical_formats(op, shapes, given)
        found, rank = self._trio(op, shapes).formats("ab", "ab"), _rank(op, shapes)
        return replace(found, factors={"weight": rank}) if rank and found.w["weight"] == TILES else found

    def buffers(self, op: Dense, shapes: Shapes) -> Buffers:
        if _many(op, shapes):
            return dense.buffers(op, shapes)
        trio = self._trio(op, shapes)
        backward = max((p.scratch for p in (trio.data, trio.weights) if p), default=0)
        return Buffers(
            forward={"scratch": ((trio.forward.scratch,), "uint8")}, backward={"scratch": ((backward,), "uint8")}
        )

    def forward(self, call: Call) -> Run:
        if _many(call.op, call.shapes):
            return dense.forward(call)
        arrays = {
            dnn.SRC: call.x[0], dnn.WEIGHTS: call.w["weight"], dnn.DST: call.y, dnn.SCRATCHPAD: call.scratch["scratch"]
        }  # fmt: skip
        if "bias" in call.w:
            arrays[dnn.BIAS] = call.w["bias"]
        return self._trio(call.op, call.shapes).forward.command(arrays)

    def backward(self, call: Call) -> Run:
        if _many(call.op, call.shapes):
            return dense.backward(call)
        trio, scratch = self._trio(call.op, call.shapes), {dnn.SCRATCHPAD: call.scratch["scratch"]}
        assert trio.weights is not None
        bias = call.dw.get("bias")
        runs = list[Command]()
        if not call.dw:
            pass
        elif rank := call.shapes.formats.factors.get("weight"):
            batch, inputs = call.shapes.x[0]
            sizes = {"batch": batch, "inputs": inputs, "units": call.op.units, "rank": rank}
            factors = call.dw["weight"].reshape(-1)
            runs = [write_factors.command(x=call.x[0], dy=call.dy, out=factors, bias=bias, **sizes)]
        else:
            arrays = {dnn.SRC: call.x[0], dnn.DIFF_DST: call.dy, dnn.DIFF_WEIGHTS: call.dw["weight"], **scratch}
            runs = [trio.weights.command(arrays if bias is None else {**arrays, dnn.DIFF_BIAS: bias})]
        if call.dx[0] is not None and trio.data is not None:
            runs.append(
                trio.data.command(
                    {dnn.DIFF_DST: call.dy, dnn.WEIGHTS: call.w["weight"], dnn.DIFF_SRC: call.dx[0], **scratch}
                )
            )
        return together(runs)
