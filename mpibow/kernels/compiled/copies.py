"""Channels padded with zeros, and concatenation: runs of memory copied, in any layout that does not cut them up."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from mpibow.graph.formats import canonical, parse, physical
from mpibow.graph.graph import Array, Shape
from mpibow.graph.kernel import Call, Formats, Run, Shapes
from mpibow.kernels.compiled.command import Command, command, floats, native, together, words
from mpibow.ops import KERNELS, Concat, PadChannels


@native
def copy_runs(arguments: int, _: int, count: int, __: int) -> int:
    """(source, target, runs, length, step, stride): runs of `length` from every `step` to every `stride` elements."""
    a = words(arguments, count)
    for run in range(a[2]):
        source, target = floats(a[0] + 4 * run * a[4], a[3]), floats(a[1] + 4 * run * a[5], a[3])
        for i in range(a[3]):
            target[i] = source[i]
    return 0


@native
def zero_runs(arguments: int, _: int, count: int, __: int) -> int:
    """(target, runs, length, stride): 0 into runs of `length`, one every `stride` elements."""
    a = words(arguments, count)
    for run in range(a[1]):
        target = floats(a[0] + 4 * run * a[3], a[2])
        for i in range(a[2]):
            target[i] = np.float32(0)
    return 0


def _formats(axis: int, shapes: Shapes, given: tuple[str, ...], whole: Sequence[Shape]) -> Formats:
    """The first input's layout, unless a tensor of `whole`, with others behind it, would end inside a block."""
    block = prod(size for at, size in parse(given[0])[1] if at == axis)
    tag = canonical(shapes.y) if any(shape[axis] % block for shape in whole) else given[0]
    return Formats((tag,) * len(given), tag)


def _runs(axis: int, tag: str, shape: Shape) -> tuple[int, int]:
    """The number and length of the runs of memory that a tensor (shape) adds to one that is longer along `axis`."""
    extents, place = physical(tag, shape), parse(tag)[0].index(axis)
    return prod(extents[:place]), prod(extents[place:])


def _places(axis: int, tag: str, whole: Shape, parts: Sequence[Shape]) -> list[tuple[int, int, int, int]]:
    """(first element, runs, length, stride) of every part in `whole`."""
    stride, found, start = _runs(axis, tag, whole)[1], [], 0
    for part in parts:
        runs, length = _runs(axis, tag, part)
        found.append((start, runs, length, stride))
        start += length
    return found


def _from(array: Array, element: int) -> Array:
    return array.reshape(-1)[element:]


def concat_formats(op: Concat, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    return _formats(op.axis, shapes, given, shapes.x[:-1])


def concat_forward(call: Call) -> Run:
    if call.y.dtype != np.float32:
        return KERNELS[Concat].forward(call)
    places = _places(call.op.axis, call.shapes.formats.y, call.shapes.y, call.shapes.x)
    return together(
        [
            command(copy_runs, x, _from(call.y, start), runs, length, length, stride)
            for x, (start, runs, length, stride) in zip(call.x, places, strict=True)
        ]
    )


def concat_backward(call: Call) -> Run:
    places = _places(call.op.axis, call.shapes.formats.y, call.shapes.y, call.shapes.x)
    return together(
        [
            command(copy_runs, _from(call.dy, start), dx, runs, length, stride, length)
            for dx, (start, runs, length, stride) in zip(call.dx, places, strict=True)
            if dx is not None
        ]
    )


def pad_formats(op: PadChannels, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    return _formats(1, shapes, given, shapes.x)


def pad_forward(call: Call) -> Run:
    ((_, runs, length, stride),) = _places(1, call.shapes.formats.y, call.shapes.y, call.shapes.x)
    copy: Command = command(copy_runs, call.x[0], call.y, runs, length, length, stride)
    if length == stride:
        return copy
    return together([copy, command(zero_runs, _from(call.y, length), runs, stride - length, stride)])


def pad_backward(call: Call) -> Run:
    ((_, runs, length, stride),) = _places(1, call.shapes.formats.y, call.shapes.y, call.shapes.x)
    (dx,) = call.dx
    assert dx is not None
    return command(copy_runs, call.dy, dx, runs, length, stride, length)
