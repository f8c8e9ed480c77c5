"""Max and average pooling by oneDNN, in the layout that the image comes in."""

from __future__ import annotations

from ctypes import c_int

from mpibow.graph.formats import canonical
from mpibow.graph.graph import Shape
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes, Spec
from mpibow.kernels.compiled import means
from mpibow.kernels.onednn import capi as dnn
from mpibow.kernels.onednn.library import Library, behind, dims
from mpibow.kernels.onednn.primitives import Primitive, slow
from mpibow.ops import AvgPool2d, MaxPool2d

Pool = MaxPool2d | AvgPool2d


class Pooling:
    """numba computes the case that oneDNN lacks: zeros that count in windows that extend beyond the padding."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._made: dict[tuple[Pool, Shape, str, bool], tuple[Primitive, Primitive | None]] = {}

    def _pair(self, op: Pool, shapes: Shapes) -> tuple[Primitive, Primitive | None]:
        key = (op, shapes.x[0], shapes.formats.y, shapes.training)
        if key not in self._made:
            self._made[key] = self._make(op, shapes)
        return self._made[key]

    def _make(self, op: Pool, shapes: Shapes) -> tuple[Primitive, Primitive | None]:
        layout, make, tag = self.library.descriptor, self.library.primitive, shapes.formats.y
        kind = dnn.MAX_POOLING
        if isinstance(op, AvgPool2d):
            kind = dnn.AVG_POOLING if op.count_padding else dnn.AVG_POOLING_INSIDE
        after = behind(shapes, op.kernel, op.stride, op.padding)
        window = dims(*op.stride), dims(*op.kernel), dims(0, 0), dims(*op.padding), dims(*after)
        x, y = layout(shapes.x[0], tag), layout(shapes.y, tag)
        mode = c_int(dnn.TRAINING if shapes.training else dnn.INFERENCE)
        forward = make("pooling_forward", mode, c_int(kind), x, y, *window)
        if not shapes.training:
            return forward, None
        return forward, make("pooling_backward", c_int(kind), x, y, *window, forward)

    def slow(self, op: Pool, shapes: Shapes) -> tuple[str, ...]:
        return () if _hangs(op, shapes) else slow(*self._pair(op, shapes))

    def formats(self, op: Pool, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        tag = canonical(shapes.y) if _hangs(op, shapes) else given[0]
        return Formats((tag,), tag)

    def buffers(self, op: Pool, shapes: Shapes) -> Buffers:
        if _hangs(op, shapes):
            return Buffers()
        forward, backward = self._pair(op, shapes)
        scratch: dict[str, Spec] = {"scratch": ((forward.scratch,), "uint8")}
        if backward is None:
            return Buffers(forward=scratch)
        places = forward.layout(dnn.WORKSPACE).bytes
        return Buffers(
            saved={"places": ((places,), "uint8")} if places else {},
            forward=scratch,
            backward={"scratch": ((backward.scratch,), "uint8")},
        )

    def forward(self, call: Call) -> Run:
        if _hangs(call.op, call.shapes):
            return means.forward(call)
        arrays = {dnn.SRC: call.x[0], dnn.DST: call.y, dnn.SCRATCHPAD: call.scratch["scratch"]}
        if "places" in call.saved:
            arrays[dnn.WORKSPACE] = call.saved["places"]
        return self._pair(call.op, call.shapes)[0].command(arrays)

    def backward(self, call: Call) -> Run:
        if _hangs(call.op, call.shapes):
            return means.backward(call)
        backward, dx = self._pair(call.op, call.shapes)[1], call.dx[0]
        assert backward is not None
        assert dx is not None
        arrays = {dnn.DIFF_DST: call.dy, dnn.DIFF_SRC: dx, dnn.SCRATCHPAD: call.scratch["scratch"]}
        if "places" in call.saved:
            arrays[dnn.WORKSPACE] = call.saved["places"]
        return backward.command(arrays)


def _hangs(op: Pool, shapes: Shapes) -> bool:
    """Whether the mean counts zeros of the padding, and windows extend beyond it."""
    if not isinstance(op, AvgPool2d) or not op.count_padding:
        return False
    after = behind(shapes, op.kernel, op.stride, op.padding)
    return any(last > first for last, first in zip(after, op.padding, strict=True))
