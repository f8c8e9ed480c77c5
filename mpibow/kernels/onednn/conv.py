"""Convolution by oneDNN, in the layouts that it chooses."""

from contextlib import suppress
from ctypes import c_int

import numpy as np

from mpibow.graph import FLOAT, Array, Buffers, Call, Formats, Kernel, Op, Run, Shape, Shapes, Spec, Specs, Tags
from mpibow.graph.formats import canonical
from mpibow.kernels.compiled.command import Command, together
from mpibow.kernels.compiled.elementwise import masked
from mpibow.kernels.compiled.native import Floats, Single, native
from mpibow.kernels.onednn import capi as dnn, depthwise
from mpibow.ops import Conv2d
from mpibow.ops.fused import ConvNormAddRelu, ConvRelu

from .library import Library, Unimplemented, behind
from .primitives import Primitive, Trio, once, slow

Conv = Conv2d | ConvRelu


class Convolution:
    """Weights of a convolution in groups have one axis more in oneDNN, (g, o / g, c / g, h, w): they stay canonical in
    the replica, and are reordered into scratch memory here. Our own kernels compute a gradient of a depthwise
    convolution where oneDNN has only reference code, a hundred times slower.
    """

    def __init__(self, library: Library):
        self.library = library
        self._trio = once(self._make)

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.forward, self.backward, self.buffers, self.formats, self.slow, inputs_alone=True)

    def _make(self, op: Conv, shapes: Shapes) -> Trio:
        trio = self._primitives(op, shapes)
        if self._slow(op, shapes, trio):
            # As a matrix product, of images row by row, the library has every convolution.
            with suppress(Unimplemented):
                product = self._primitives(op, shapes, "abcd")
                return trio if self._slow(op, shapes, product) else product
        return trio

    def _slow(self, op: Conv, shapes: Shapes, trio: Trio) -> tuple[str, ...]:
        """The halves that only the library's reference code computes."""
        data, weights = (None if self._lanes(op, shapes, trio, p) else p for p in (trio.data, trio.weights))
        return slow(trio.forward, data, weights)

    def slow(self, op: Conv, shapes: Shapes) -> tuple[str, ...]:
        return self._slow(op, shapes, self._trio(op, shapes))

    def _lanes(self, op: Conv, shapes: Shapes, trio: Trio, part: Primitive | None) -> int:
        """The channels of a block where a gradient, `part` of the trio, is computed by our own kernel; else 0."""
        if part is None or part is trio.forward or not part.slow:
            return 0
        return depthwise.lanes_of(plain(op), shapes, *trio.image)

    def _primitives(self, op: Conv, shapes: Shapes, tag: str = "any") -> Trio:
        conv = plain(op)
        layout = self.library.descriptor
        bias = layout((conv.channels,), "a") if conv.bias else None
        return self.library.trio(
            shapes,
            "convolution",
            (layout(shapes.x[0], tag), layout(_grouped(conv, shapes)), bias, layout(shapes.y, tag)),
            _window(conv, shapes),
            algorithm=[c_int(dnn.DIRECT)],
            relu=isinstance(op, ConvRelu),
        )

    def formats(self, op: Conv, shapes: Shapes, given: Tags) -> Formats:
        trio = self._trio(op, shapes)
        x, y = trio.image
        return Formats((x,), y) if plain(op).groups > 1 else trio.formats(x, y)

    def buffers(self, op: Conv, shapes: Shapes) -> Buffers:
        trio = self._trio(op, shapes)
        forward = dict(trio.buffers.forward)
        backward = dict(trio.buffers.backward)
        if isinstance(op, ConvRelu):
            backward["dz"] = _floats(trio.forward, dnn.DST)
        if plain(op).groups > 1:
            forward["weight"] = _floats(trio.forward, dnn.WEIGHTS)
            lanes = [self._lanes(op, shapes, trio, part) for part in (trio.data, trio.weights)]
            if trio.data and not lanes[0]:
                backward["weight"] = _floats(trio.data, dnn.WEIGHTS)
            if trio.weights and not lanes[1]:
                backward["dweight"] = _floats(trio.weights, dnn.DIFF_WEIGHTS)
            if any(lanes):
                backward["taps"] = depthwise.scratch(plain(op), max(lanes))
        return Buffers(forward=forward, backward=backward)

    def forward(self, call: Call) -> Command:
        trio = self._trio(call.op, call.shapes)
        return together([*self._regrouped(call, trio.weight), trio.forward.on(call)])

    def backward(self, call: Call) -> Run:
        dy, runs = before_relu(call)
        if call.dw:
            runs += self.of_weights(call, dy)
        return together([*runs, *self.of_inputs(call, dy)])

    def of_weights(self, call: Call, dy: Array) -> list[Command]:
        """The gradients of the weights."""
        trio = self._trio(call.op, call.shapes)
        op = plain(call.op)
        assert trio.weights is not None
        if lanes := self._lanes(call.op, call.shapes, trio, trio.weights):
            return [depthwise.command_of(call, op, lanes, dy, back=False)]
        runs = [trio.weights.on(call, dy=dy)]
        shape = _grouped(op, call.shapes)
        if "dweight" in call.scratch:
            copy = self.library.reorder(shape, trio.gradient, canonical(shape))
            runs.append(copy.on(call, x=call.scratch["dweight"], y=call.dw["weight"], scratch=_spare(copy)))
        return runs

    def of_inputs(self, call: Call, dy: Array) -> list[Command]:
        """The gradient of the input, where it is needed."""
        trio = self._trio(call.op, call.shapes)
        if call.dx[0] is None or trio.data is None:
            return []
        if lanes := self._lanes(call.op, call.shapes, trio, trio.data):
            return [depthwise.command_of(call, plain(call.op), lanes, dy, back=True)]
        return [*self._regrouped(call, trio.back), trio.data.on(call, dy=dy)]

    def _regrouped(self, call: Call, tag: str) -> list[Command]:
        """Weights in groups to the layout that a primitive requires, in scratch memory."""
        if "weight" not in call.scratch:
            return []
        shape = _grouped(plain(call.op), call.shapes)
        copy = self.library.reorder(shape, canonical(shape), tag)
        return [copy.on(call, x=call.w["weight"], y=call.scratch["weight"], scratch=_spare(copy))]


def normalised(library: Library) -> Kernel:
    """Convolution, batch norm by the running statistics, sum and relu in one pass: a net being evaluated."""

    @once
    def primitive_of(op: ConvNormAddRelu, shapes: Shapes) -> Primitive:
        conv = op.conv
        any_layout = library.descriptor
        channel = any_layout((1, conv.channels, 1, 1), "abcd")
        bias = any_layout((conv.channels,), "a") if conv.bias else None

        def described(y: str) -> tuple[object, ...]:
            image = any_layout(shapes.x[0]), any_layout(_grouped(conv, shapes)), bias, any_layout(shapes.y, y)
            return c_int(dnn.INFERENCE), c_int(dnn.DIRECT), *image, *_window(conv, shapes)

        def fused(y: str, added: str) -> Primitive:
            then = [(dnn.MULTIPLY, channel), (dnn.ADD, channel)]
            then += [(dnn.ADD, any_layout(shapes.y, added))] if op.added else []
            return library.primitive("convolution_forward", *described(y), then=then, relu=op.relu)

        tag = library.primitive("convolution_forward", *described("any")).layout(dnn.DST).tag
        primitive = fused("any", tag)
        # With these operations fused the library may choose another layout of y. The summand needs it too.
        chosen = primitive.layout(dnn.DST).tag
        return primitive if chosen == tag or not op.added else fused(chosen, chosen)

    def formats(op: ConvNormAddRelu, shapes: Shapes, given: Tags) -> Formats:
        x, weight, y = (primitive_of(op, shapes).layout(part).tag for part in (dnn.SRC, dnn.WEIGHTS, dnn.DST))
        return Formats((x, y) if op.added else (x,), y, {"weight": weight})

    def buffers(op: ConvNormAddRelu, shapes: Shapes) -> Buffers:
        channel = ((op.conv.channels,), FLOAT)
        return Buffers(forward={**primitive_of(op, shapes).needs, "scale": channel, "shift": channel})

    def forward(call: Call) -> Run:
        norm = {key: call.w[f"batch_norm.{key}"] for key in ("weight", "bias")}
        norm |= {key: call.statistics[f"batch_norm.{key}"] for key in ("mean", "variance")}
        scale = call.scratch["scale"]
        shift = call.scratch["shift"]
        fold = _fold.command(**norm, scale=scale, shift=shift, epsilon=call.op.norm.epsilon)
        behind = [scale, shift, *call.x[1:]]
        then = {(i + 1) * dnn.THEN | dnn.SRC_1: array for i, array in enumerate(behind)}
        return together([fold, primitive_of(call.op, call.shapes).on(call, then)])

    return Kernel(forward, None, buffers, formats, lambda op, shapes: slow(primitive_of(op, shapes)))


@native
def _fold(
    weight: Floats, bias: Floats, mean: Floats, variance: Floats, scale: Floats, shift: Floats, epsilon: Single
) -> None:
    """batch_norm(x) = scale x + shift."""
    for i in range(len(scale)):
        scale[i] = weight[i] / np.sqrt(variance[i] + epsilon)
        shift[i] = bias[i] - mean[i] * scale[i]


def _window(op: Conv2d, shapes: Shapes) -> tuple[object, ...]:
    """Stride, gaps, padding in front and behind, as the library takes them."""
    after = behind(shapes, op.kernel, op.stride, op.padding, op.dilation)
    return dnn.Dims(*op.stride), dnn.Dims(*(d - 1 for d in op.dilation)), dnn.Dims(*op.padding), dnn.Dims(*after)


def _spare(primitive: Primitive) -> Array:
    return np.zeros(primitive.scratch, np.uint8)


def _floats(primitive: Primitive, argument: int) -> Spec:
    return (primitive.layout(argument).bytes // 4,), FLOAT


def plain(op: Conv) -> Conv2d:
    return op.conv if isinstance(op, ConvRelu) else op


def before_relu(call: Call) -> tuple[Array, list[Command]]:
    """The gradient of the convolution, and what computes it where a relu follows."""
    if not isinstance(call.op, ConvRelu):
        return call.dy, []
    dz = call.scratch["dz"]
    return dz, [masked.command(dy=call.dy, y=call.y, dx=dz)]


def floats_of(**counts: int) -> Specs:
    """Scratch of so many floats by key."""
    return {key: ((count,), FLOAT) for key, count in counts.items()}


def in_blocks(op: Op, shapes: Shapes, given: Tags) -> Formats:
    """The layouts of our own convolutions: blocks of 16 channels."""
    return Formats(("aBcd16b",), "aBcd16b", {"weight": "ABcd16b16a"})


def _grouped(op: Conv2d, shapes: Shapes) -> Shape:
    """The weight's shape in oneDNN."""
    g = op.groups
    c = shapes.x[0][1]
    return (op.channels, c, *op.kernel) if g == 1 else (g, op.channels // g, c // g, *op.kernel)
