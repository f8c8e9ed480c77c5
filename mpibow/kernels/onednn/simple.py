"""Operators that are one oneDNN primitive forward and one backward: reorder, local response normalisation."""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64

from mpibow.graph.formats import Reorder, canonical
from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes, Spec
from mpibow.kernels.compiled import local_response
from mpibow.kernels.onednn import capi as dnn
from mpibow.kernels.onednn.library import Library
from mpibow.kernels.onednn.primitives import Primitive
from mpibow.ops import LocalResponseNorm


class Reordering:
    """From one layout to another, and a gradient back."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def formats(self, op: Reorder, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        return Formats((op.source,), op.target)

    def buffers(self, op: Reorder, shapes: Shapes) -> Buffers:
        there = self.library.reorder(shapes.y, op.source, op.target)
        back = self.library.reorder(shapes.y, op.target, op.source)
        return Buffers(
            forward={"scratch": ((there.scratch,), "uint8")}, backward={"scratch": ((back.scratch,), "uint8")}
        )

    def forward(self, call: Call) -> Run:
        op = call.op
        there = self.library.reorder(call.shapes.y, op.source, op.target)
        return there.command({dnn.SRC: call.x[0], dnn.DST: call.y, dnn.SCRATCHPAD: call.scratch["scratch"]})

    def backward(self, call: Call) -> Run:
        op, dx = call.op, call.dx[0]
        assert dx is not None
        back = self.library.reorder(call.shapes.y, op.target, op.source)
        return back.command({dnn.SRC: call.dy, dnn.DST: dx, dnn.SCRATCHPAD: call.scratch["scratch"]})


class LocalResponse:
    """In the given layout. numba computes the cases that oneDNN lacks or has reference code only for."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def formats(self, op: LocalResponseNorm, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        tag = canonical(shapes.y) if self._elsewhere(op, shapes, given[0]) else given[0]
        return Formats((tag,), tag)

    def _elsewhere(self, op: LocalResponseNorm, shapes: Shapes, tag: str) -> bool:
        """Even windows lie elsewhere in oneDNN; its backward half of one channel reads out of bounds (3.2 crashes);
        for some layouts it has reference code only."""
        return op.size % 2 == 0 or op.size == 1 or any(each and each.slow for each in self._pair(op, shapes, tag))

    def _pair(self, op: LocalResponseNorm, shapes: Shapes, tag: str) -> tuple[Primitive, Primitive | None]:
        x, make = self.library.descriptor(shapes.y, tag), self.library.primitive
        across = c_int(dnn.LRN_ACROSS)
        settings = c_int64(op.size), c_float(op.alpha), c_float(op.beta), c_float(op.k)
        kind = c_int(dnn.TRAINING if shapes.training else dnn.INFERENCE)
        forward = make("lrn_forward", kind, across, x, x, *settings)
        backward = make("lrn_backward", across, x, x, x, *settings, forward) if shapes.training else None
        return forward, backward

    def buffers(self, op: LocalResponseNorm, shapes: Shapes) -> Buffers:
        if self._elsewhere(op, shapes, shapes.formats.y):
            return local_response.buffers(op, shapes)
        forward, backward = self._pair(op, shapes, shapes.formats.y)
        scratch: dict[str, Spec] = {"scratch": ((forward.scratch,), "uint8")}
        if backward is None:
            return Buffers(forward=scratch)
        saved = forward.layout(dnn.WORKSPACE).bytes
        return Buffers(
            saved={"powers": ((saved,), "uint8")} if saved else {},
            forward=scratch,
            backward={"scratch": ((backward.scratch,), "uint8")},
        )

    def forward(self, call: Call) -> Run:
        if self._elsewhere(call.op, call.shapes, call.shapes.formats.y):
            return local_response.forward(call)
        arrays = {dnn.SRC: call.x[0], dnn.DST: call.y, dnn.SCRATCHPAD: call.scratch["scratch"], **_powers(call)}
        return self._pair(call.op, call.shapes, call.shapes.formats.y)[0].command(arrays)

    def backward(self, call: Call) -> Run:
        if self._elsewhere(call.op, call.shapes, call.shapes.formats.y):
            return local_response.backward(call)
        backward, dx = self._pair(call.op, call.shapes, call.shapes.formats.y)[1], call.dx[0]
        assert backward is not None
        assert dx is not None
        arrays = {
            dnn.SRC: call.x[0], dnn.DIFF_DST: call.dy, dnn.DIFF_SRC: dx, dnn.SCRATCHPAD: call.scratch["scratch"],
            **_powers(call),
        }  # fmt: skip
        return backward.command(arrays)


def _powers(call: Call) -> dict[int, Array]:
    return {dnn.WORKSPACE: call.saved["powers"]} if "powers" in call.saved else {}
