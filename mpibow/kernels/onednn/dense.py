"""The dense layer by oneDNN's inner product."""

from __future__ import annotations

from ctypes import c_int

from mpibow.graph.graph import Shape
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes
from mpibow.kernels.compiled.command import Command, together
from mpibow.kernels.onednn import library as dnn
from mpibow.kernels.onednn.library import Library, Trio
from mpibow.ops import Dense


class InnerProduct:
    def __init__(self, library: Library) -> None:
        self.library = library
        self._made: dict[tuple[Dense, Shape, bool, bool], Trio] = {}

    def _trio(self, op: Dense, shapes: Shapes) -> Trio:
        key = (op, shapes.x[0], shapes.training, bool(shapes.wanted))
        if key not in self._made:
            self._made[key] = self._make(op, shapes)
        return self._made[key]

    def _make(self, op: Dense, shapes: Shapes) -> Trio:
        layout, make = self.library.descriptor, self.library.primitive
        x, y, weight = layout(shapes.x[0], "ab"), layout(shapes.y, "ab"), layout((op.units, shapes.x[0][1]))
        bias = layout((op.units,), "a") if op.bias else None
        kind = c_int(dnn.TRAINING if shapes.training else dnn.INFERENCE)
        forward = make("inner_product_forward", kind, x, weight, bias, y)
        if not shapes.training:
            return Trio(forward, None, None)
        data = make("inner_product_backward_data", x, weight, y, forward) if shapes.wanted else None
        return Trio(forward, data, make("inner_product_backward_weights", x, weight, bias, y, forward))

    def formats(self, op: Dense, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        return self._trio(op, shapes).formats("ab", "ab")

    def buffers(self, op: Dense, shapes: Shapes) -> Buffers:
        trio = self._trio(op, shapes)
        backward = max((p.scratch for p in (trio.data, trio.weights) if p), default=0)
        return Buffers(
            forward={"scratch": ((trio.forward.scratch,), "uint8")}, backward={"scratch": ((backward,), "uint8")}
        )

    def forward(self, call: Call) -> Run:
        arrays = {
            dnn.SRC: call.x[0], dnn.WEIGHTS: call.w["weight"], dnn.DST: call.y, dnn.SCRATCHPAD: call.scratch["scratch"]
        }  # fmt: skip
        if "bias" in call.w:
            arrays[dnn.BIAS] = call.w["bias"]
        return self._trio(call.op, call.shapes).forward.command(arrays)

    def backward(self, call: Call) -> Run:
        trio, scratch = self._trio(call.op, call.shapes), {dnn.SCRATCHPAD: call.scratch["scratch"]}
        assert trio.weights is not None
        arrays = {dnn.SRC: call.x[0], dnn.DIFF_DST: call.dy, dnn.DIFF_WEIGHTS: call.dw["weight"], **scratch}
        if "bias" in call.dw:
            arrays[dnn.DIFF_BIAS] = call.dw["bias"]
        runs: list[Command] = [trio.weights.command(arrays)]
        if call.dx[0] is not None and trio.data is not None:
            runs.append(
                trio.data.command(
                    {dnn.DIFF_DST: call.dy, dnn.WEIGHTS: call.w["weight"], dnn.DIFF_SRC: call.dx[0], **scratch}
                )
            )
        return together(runs)
