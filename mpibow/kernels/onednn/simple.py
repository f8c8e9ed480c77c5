"""Operators that are one oneDNN primitive forward and one backward: pooling, local response normalisation, reorder."""

from collections.abc import Callable
from ctypes import c_float, c_int, c_int64
from dataclasses import replace

from mpibow.graph import Buffers, Call, Formats, Kernel, Run, Shape, Shapes, Tags, as_given
from mpibow.graph.formats import Reorder
from mpibow.kernels.compiled import means, norms
from mpibow.kernels.isa import ISA
from mpibow.kernels.onednn import capi as dnn
from mpibow.ops import AvgPool2d, LocalResponseNorm, MaxPool2d

from .library import Library, behind
from .primitives import Halves, Primitive, R, either, once

Pool = MaxPool2d | AvgPool2d


def alone(halves: Callable[[R, Shapes], Halves]) -> Kernel:
    """The kernel whose halves are these primitives, in the layout of the input."""

    def backward(call: Call) -> Run:
        primitive = halves(call.op, call.shapes).backward
        assert primitive is not None
        return primitive.on(call)

    return Kernel(
        lambda call: halves(call.op, call.shapes).forward.on(call),
        backward,
        lambda op, shapes: halves(op, shapes).buffers,
        as_given,
        lambda op, shapes: halves(op, shapes).slow,
    )


def reordering(library: Library) -> Kernel:
    """From one layout to another, and a gradient back."""

    def there(op: Reorder, shapes: Shapes) -> Primitive:
        return library.reorder(shapes.y, op.source, op.target)

    def back(op: Reorder, shapes: Shapes) -> Primitive:
        return library.reorder(shapes.y, op.target, op.source)

    return Kernel(
        lambda call: there(call.op, call.shapes).on(call),
        lambda call: back(call.op, call.shapes).on(call, x=call.dy, y=call.dx0),
        lambda op, shapes: Buffers(forward=there(op, shapes).needs, backward=back(op, shapes).needs),
        lambda op, shapes, given: Formats((op.source,), op.target),
    )


def pooling(library: Library) -> Kernel:
    """Max and average. numba computes the case that oneDNN lacks: zeros that count in windows beyond the padding."""

    @once
    def halves(op: Pool, shapes: Shapes) -> Halves:
        kind = c_int(dnn.MAX_POOLING)
        if isinstance(op, AvgPool2d):
            kind = c_int(dnn.AVG_POOLING if op.count_padding else dnn.AVG_POOLING_INSIDE)
        x, y = (library.descriptor(*_images(shape, shapes.formats.y)) for shape in (shapes.x[0], shapes.y))
        after = behind(shapes, op.kernel, op.stride, op.padding)
        window = dnn.Dims(*op.stride), dnn.Dims(*op.kernel), dnn.Dims(0, 0), dnn.Dims(*op.padding), dnn.Dims(*after)
        arguments = kind, x, y, *window
        return library.halves(shapes, "pooling", arguments, arguments)

    def formats(op: Pool, shapes: Shapes, given: Tags) -> Formats:
        """As given, but whole blocks of 16 channels rather than planes: on AVX2 these take 50 times as long."""
        blocks = given[0] == "abcd" and ISA == "AVX2" and shapes.y[1] % 16 == 0
        return as_given(op, shapes, ("aBcd16b",) if blocks else given)

    return either(_hangs, means.WINDOWS, replace(alone(halves), formats=formats))


def _images(shape: Shape, tag: str) -> tuple[Shape, str]:
    """A shape and its layout. AVX2 has no code for blocks of 16 channels: each is an image of its own there, whose
    channels lie innermost."""
    n, channels, *side = shape
    ours = tag == "aBcd16b" and ISA == "AVX2"
    return ((n * -(-channels // 16), 16, *side), "acdb") if ours else (shape, tag)


def _hangs(op: Pool, shapes: Shapes) -> bool:
    """Whether the mean counts zeros of the padding, and windows extend beyond it."""
    if not isinstance(op, AvgPool2d) or not op.count_padding:
        return False
    after = behind(shapes, op.kernel, op.stride, op.padding)
    return any(last > first for last, first in zip(after, op.padding, strict=True))


def local_responses(library: Library) -> Kernel:
    """numba computes the cases that oneDNN lacks or has reference code only for."""

    @once
    def halves(op: LocalResponseNorm, shapes: Shapes) -> Halves:
        x = library.descriptor(shapes.y, shapes.formats.y)
        across = c_int(dnn.LRN_ACROSS)
        settings = c_int64(op.size), c_float(op.alpha), c_float(op.beta), c_float(op.k)
        return library.halves(shapes, "lrn", (across, x, x, *settings), (across, x, x, x, *settings))

    def lacks(op: LocalResponseNorm, shapes: Shapes) -> bool:
        """Even windows lie elsewhere in oneDNN; its backward half is wrong for 17 channels, and crashes for 1 (3.2)."""
        return op.size % 2 == 0 or op.size == 1 or shapes.y[1] % 16 > 0 or bool(halves(op, shapes).slow)

    return either(lacks, norms.RESPONSES, alone(halves))
