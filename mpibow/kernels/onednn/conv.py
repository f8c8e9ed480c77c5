"""Convolution by oneDNN, in the layouts that it chooses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_int
from types import ModuleType
from typing import Any, cast

import numpy as np

from mpibow.graph.formats import canonical
from mpibow.graph.graph import FLOAT, Array, Shape
from mpibow.graph.kernel import Buffers, Call, Formats, Run, Shapes, Spec
from mpibow.kernels.compiled.arguments import Floats, Single
from mpibow.kernels.compiled.command import Command, native, together
from mpibow.kernels.compiled.elementwise import masked
from mpibow.kernels.onednn import capi as dnn
from mpibow.kernels.onednn import depthwise
from mpibow.kernels.onednn.library import Library, Unimplemented, behind, dims
from mpibow.kernels.onednn.primitives import Primitive, Trio, slow
from mpibow.ops import Conv2d
from mpibow.ops.fused import ConvNormAddRelu, ConvRelu


class Convolution:
    """Weights of a convolution in groups have one axis more in oneDNN, (g, o / g, c / g, h, w): they stay canonical in
    the replica, and are reordered into scratch memory here. Our own kernels convolve where Winograd's is faster, and
    where oneDNN has only reference code, a hundred times slower, for a gradient of a depthwise convolution.
    """

    def __init__(self, library: Library, own: Sequence[ModuleType] = ()) -> None:
        self.library = library
        self._modules = own if library.wide else ()
        self._made: dict[tuple[ConvRelu | Conv2d, Shape, bool, bool], Trio] = {}

    def _own(self, op: ConvRelu | Conv2d, shapes: Shapes) -> ModuleType | None:
        """The module of our own kernels that is faster than the library."""
        return next((each for each in self._modules if each.fits(_plain(op), shapes)), None)

    def _trio(self, op: ConvRelu | Conv2d, shapes: Shapes) -> Trio:
        key = (op, shapes.x[0], shapes.training, bool(shapes.wanted))
        if key not in self._made:
            self._made[key] = self._make(op, shapes)
        return self._made[key]

    def _make(self, op: ConvRelu | Conv2d, shapes: Shapes) -> Trio:
        trio = self._primitives(op, shapes)
        if self._slow(op, shapes, trio):
            # As a matrix product, of images row by row, the library has every convolution.
            with suppress(Unimplemented):
                plain = self._primitives(op, shapes, "abcd")
                return trio if self._slow(op, shapes, plain) else plain
        return trio

    def _slow(self, op: ConvRelu | Conv2d, shapes: Shapes, trio: Trio) -> tuple[str, ...]:
        """The halves that only the library's reference code computes."""
        data, weights = (None if self._lanes(op, shapes, trio, p) else p for p in (trio.data, trio.weights))
        return slow(trio.forward, data, weights)

    def slow(self, op: ConvRelu | Conv2d, shapes: Shapes) -> tuple[str, ...]:
        return () if self._own(op, shapes) else self._slow(op, shapes, self._trio(op, shapes))

    def _lanes(self, op: ConvRelu | Conv2d, shapes: Shapes, trio: Trio, part: Primitive | None) -> int:
        """The channels of a block where a gradient, `part` of the trio, is computed by our own kernel; else 0."""
        if part is None or part is trio.forward or not part.slow:
            return 0
        return depthwise.lanes_of(_plain(op), shapes, *(trio.forward.layout(each).tag for each in (dnn.SRC, dnn.DST)))

    def _primitives(self, op: ConvRelu | Conv2d, shapes: Shapes, tag: str = "any") -> Trio:
        conv, relu = _plain(op), isinstance(op, ConvRelu)
        any_layout, make = self.library.descriptor, self.library.primitive
        weight, bias = any_layout(_grouped(conv, shapes)), any_layout((conv.channels,), "a") if conv.bias else None
        window = _window(conv, shapes)
        kind, direct = c_int(dnn.TRAINING if shapes.training else dnn.INFERENCE), c_int(dnn.DIRECT)
        x, y = any_layout(shapes.x[0], tag), any_layout(shapes.y, tag)
        forward = make("convolution_forward", kind, direct, x, weight, bias, y, *window, relu=relu)
        if not shapes.training:
            return Trio(forward, None, None)
        x, y = forward.layout(dnn.SRC), forward.layout(dnn.DST)
        data = None
        hint = make("convolution_forward", kind, direct, x, weight, bias, y, *window) if relu else forward
        if shapes.wanted:
            data = make("convolution_backward_data", direct, x, weight, y, *window, hint)
        weights = make("convolution_backward_weights", direct, x, weight, bias, y, *window, hint)
        return Trio(forward, data, weights)

    def formats(self, op: ConvRelu | Conv2d, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        if own := self._own(op, shapes):
            return cast(Formats, own.FORMATS)
        trio = self._trio(op, shapes)
        x, y = trio.forward.layout(dnn.SRC).tag, trio.forward.layout(dnn.DST).tag
        if _plain(op).groups > 1:
            return Formats((x,), y)
        return trio.formats(x, y)

    def buffers(self, op: ConvRelu | Conv2d, shapes: Shapes) -> Buffers:
        if own := self._own(op, shapes):
            return cast(Buffers, own.buffers(op, shapes))
        trio = self._trio(op, shapes)
        forward = {"scratch": ((trio.forward.scratch,), "uint8")}
        backward: dict[str, Spec] = (
            {"scratch": ((max(p.scratch for p in (trio.data, trio.weights) if p),), "uint8")} if trio.weights else {}
        )
        if isinstance(op, ConvRelu):
            backward["dz"] = ((trio.forward.layout(dnn.DST).bytes // 4,), FLOAT)
        if _plain(op).groups > 1:
            forward["weight"] = ((trio.forward.layout(dnn.WEIGHTS).bytes // 4,), FLOAT)
            lanes = [self._lanes(op, shapes, trio, part) for part in (trio.data, trio.weights)]
            if trio.data and not lanes[0]:
                backward["weight"] = ((trio.data.layout(dnn.WEIGHTS).bytes // 4,), FLOAT)
            if trio.weights and not lanes[1]:
                backward["dweight"] = ((trio.weights.layout(dnn.DIFF_WEIGHTS).bytes // 4,), FLOAT)
            if any(lanes):
                backward["taps"] = depthwise.scratch(_plain(op), max(lanes))
        return Buffers(forward=forward, backward=backward)

    def forward(self, call: Call) -> Command:
        if own := self._own(call.op, call.shapes):
            return cast(Command, own.forward(call))
        trio, weight, runs = self._trio(call.op, call.shapes), call.w["weight"], list[Command]()
        if "weight" in call.scratch:
            runs.append(self._regroup(call, trio.weight, inward=True))
            weight = call.scratch["weight"]
        arrays = {dnn.SRC: call.x[0], dnn.WEIGHTS: weight, dnn.DST: call.y, dnn.SCRATCHPAD: call.scratch["scratch"]}
        if "bias" in call.w:
            arrays[dnn.BIAS] = call.w["bias"]
        return together([*runs, trio.forward.command(arrays)])

    def backward(self, call: Call) -> Run:
        if own := self._own(call.op, call.shapes):
            return cast(Run, own.backward(call))
        dy, runs = call.dy, list[Command]()
        if "dz" in call.scratch:
            dy = call.scratch["dz"]
            runs.append(masked.command(dy=call.dy, y=call.y, dx=dy))
        if call.dw:
            runs += self.of_weights(call, dy)
        return together([*runs, *self.of_inputs(call, dy)])

    def of_weights(self, call: Call, dy: Array) -> list[Command]:
        """The gradients of the weights."""
        trio, runs = self._trio(call.op, call.shapes), list[Command]()
        assert trio.weights is not None
        if lanes := self._lanes(call.op, call.shapes, trio, trio.weights):
            runs.append(depthwise.command_of(call, _plain(call.op), lanes, dy, back=False))
        else:
            dweight = call.scratch.get("dweight", call.dw["weight"])
            arrays = {
                dnn.SRC: call.x[0], dnn.DIFF_DST: dy, dnn.DIFF_WEIGHTS: dweight,
                dnn.SCRATCHPAD: call.scratch["scratch"],
            }  # fmt: skip
            if "bias" in call.dw:
                arrays[dnn.DIFF_BIAS] = call.dw["bias"]
            runs.append(trio.weights.command(arrays))
        if "dweight" in call.scratch:
            runs.append(self._regroup(call, trio.gradient, inward=False))
        return runs

    def of_inputs(self, call: Call, dy: Array) -> list[Command]:
        """The gradient of the input, where it is needed."""
        trio, dx, runs = self._trio(call.op, call.shapes), call.dx[0], list[Command]()
        if dx is None or trio.data is None:
            return runs
        if lanes := self._lanes(call.op, call.shapes, trio, trio.data):
            return [depthwise.command_of(call, _plain(call.op), lanes, dy, back=True)]
        weight = call.w["weight"]
        if "weight" in call.scratch:
            runs.append(self._regroup(call, trio.back, inward=True))
            weight = call.scratch["weight"]
        arrays = {
            dnn.DIFF_DST: dy, dnn.WEIGHTS: weight, dnn.DIFF_SRC: dx, dnn.SCRATCHPAD: call.scratch["scratch"],
        }  # fmt: skip
        return [*runs, trio.data.command(arrays)]

    def _regroup(self, call: Call, tag: str, *, inward: bool) -> Command:
        """Weights in groups to the layout that a primitive requires, or a gradient back."""
        shape = _grouped(_plain(call.op), call.shapes)
        plain = canonical(shape)
        if inward:
            copy = self.library.reorder(shape, plain, tag)
            return copy.command(
                {dnn.SRC: call.w["weight"], dnn.DST: call.scratch["weight"], dnn.SCRATCHPAD: _none(copy)}
            )
        copy = self.library.reorder(shape, tag, plain)
        return copy.command({dnn.SRC: call.scratch["dweight"], dnn.DST: call.dw["weight"], dnn.SCRATCHPAD: _none(copy)})


class ConvolutionNormalised:
    """Convolution, batch norm by the running statistics, sum and relu in one pass: a net being evaluated."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._made: dict[tuple[ConvNormAddRelu, Shape], Primitive] = {}

    def _primitive(self, op: ConvNormAddRelu, shapes: Shapes) -> Primitive:
        key = (op, shapes.x[0])
        if key not in self._made:
            self._made[key] = self._make(op, shapes)
        return self._made[key]

    def _make(self, op: ConvNormAddRelu, shapes: Shapes) -> Primitive:
        conv, any_layout = op.conv, self.library.descriptor
        channel = any_layout((1, conv.channels, 1, 1), "abcd")
        bias = any_layout((conv.channels,), "a") if conv.bias else None

        def made(y: str, **behind: Any) -> Primitive:
            return self.library.primitive(
                "convolution_forward", c_int(dnn.INFERENCE), c_int(dnn.DIRECT), any_layout(shapes.x[0]),
                any_layout(_grouped(conv, shapes)), bias, any_layout(shapes.y, y), *_window(conv, shapes), **behind,
            )  # fmt: skip

        def fused(y: str, added: str) -> Primitive:
            then = [(dnn.MULTIPLY, channel), (dnn.ADD, channel)]
            then += [(dnn.ADD, any_layout(shapes.y, added))] if op.added else []
            return made(y, then=then, relu=op.relu)

        tag = made("any").layout(dnn.DST).tag
        found = fused("any", tag)
        # With these operations fused the library may choose another layout of y. The summand needs it too.
        chosen = found.layout(dnn.DST).tag
        return found if chosen == tag or not op.added else fused(chosen, chosen)

    def slow(self, op: ConvNormAddRelu, shapes: Shapes) -> tuple[str, ...]:
        return slow(self._primitive(op, shapes))

    def formats(self, op: ConvNormAddRelu, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        made = self._primitive(op, shapes)
        y = made.layout(dnn.DST).tag
        x = (made.layout(dnn.SRC).tag, y) if op.added else (made.layout(dnn.SRC).tag,)
        return Formats(x, y, {"weight": made.layout(dnn.WEIGHTS).tag})

    def buffers(self, op: ConvNormAddRelu, shapes: Shapes) -> Buffers:
        channel: Spec = ((op.conv.channels,), FLOAT)
        scratch = self._primitive(op, shapes).scratch
        return Buffers(forward={"scratch": ((scratch,), "uint8"), "scale": channel, "shift": channel})

    def forward(self, call: Call) -> Run:
        made, scratch = self._primitive(call.op, call.shapes), call.scratch
        norm = {key: call.w[f"batch_norm.{key}"] for key in ("weight", "bias")}
        norm |= {key: call.statistics[f"batch_norm.{key}"] for key in ("mean", "variance")}
        fold = _fold.command(**norm, scale=scratch["scale"], shift=scratch["shift"], epsilon=call.op.norm.epsilon)
        arrays = {
            dnn.SRC: call.x[0], dnn.WEIGHTS: call.w["weight"], dnn.DST: call.y, dnn.SCRATCHPAD: scratch["scratch"],
            dnn.THEN | dnn.SRC_1: scratch["scale"], 2 * dnn.THEN | dnn.SRC_1: scratch["shift"],
        }  # fmt: skip
        if call.op.added:
            arrays[3 * dnn.THEN | dnn.SRC_1] = call.x[1]
        if "bias" in call.w:
            arrays[dnn.BIAS] = call.w["bias"]
        return together([fold, made.command(arrays)])


@native
def _fold(
    weight: Floats, bias: Floats, mean: Floats, variance: Floats, scale: Floats, shift: Floats, epsilon: Single
) -> None:
    """batch_norm(x) = scale x + shift."""
    for i in range(len(scale)):
        scale[i] = weight[i] / np.sqrt(variance[i] + epsilon)
        shift[i] = bias[i] - mean[i] * scale[i]


def _window(op: Conv2d, shapes: Shapes) -> tuple[Any, ...]:
    """Stride, gaps, padding in front and behind, as the library takes them."""
    after = behind(shapes, op.kernel, op.stride, op.padding, op.dilation)
    return dims(*op.stride), dims(*(d - 1 for d in op.dilation)), dims(*op.padding), dims(*after)


def _none(primitive: Primitive) -> Array:
    return np.zeros(max(primitive.scratch, 64), np.uint8)


def _plain(op: ConvRelu | Conv2d) -> Conv2d:
    return op.conv if isinstance(op, ConvRelu) else op


def _grouped(op: Conv2d, shapes: Shapes) -> Shape:
    """The weight's shape in oneDNN."""
    g, c = op.groups, shapes.x[0][1]
    return (op.channels, c, *op.kernel) if g == 1 else (g, op.channels // g, c // g, *op.kernel)
