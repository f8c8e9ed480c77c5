"""Channels padded with zeros, and concatenation: runs of memory copied, in any layout that does not cut them up."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from mpibow.graph.formats import canonical, parse, physical
from mpibow.graph.graph import Array, Shape
from mpibow.graph.kernel import Call, Formats, Run, Shapes
from mpibow.kernels.compiled.arguments import Address
from mpibow.kernels.compiled.command import Command, floats, native, together
from mpibow.ops import KERNELS, Concat, PadChannels


@native
def copy_runs(source: Address, target: Address, runs: int, length: int, step: int, stride: int) -> None:
    """Copies runs of `length` from every `step` to every `stride` elements."""
    for run in range(runs):
        source_row, target_row = floats(source + 4 * run * step, length), floats(target + 4 * run * stride, length)
        for i in range(length):
            target_row[i] = source_row[i]


@native
def zero_runs(target: Address, runs: int, length: int, stride: int) -> None:
    """Writes 0 into runs of `length`, one every `stride` elements."""
    for run in range(runs):
        target_row = floats(target + 4 * run * stride, length)
        for i in range(length):
            target_row[i] = np.float32(0)


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
            copy_runs.command(
                source=x, target=_from(call.y, start), runs=runs, length=length, step=length, stride=stride
            )
            for x, (start, runs, length, stride) in zip(call.x, places, strict=True)
        ]
    )


def concat_backward(call: Call) -> Run:
    places = _places(call.op.axis, call.shapes.formats.y, call.shapes.y, call.shapes.x)
    return together(
        [
            copy_runs.command(
                source=_from(call.dy, start), target=dx, runs=runs, length=length, step=stride, stride=length
            )
            for dx, (start, runs, length, stride) in zip(call.dx, places, strict=True)
            if dx is not None
        ]
    )


def pad_formats(op: PadChannels, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    return _formats(1, shapes, given, shapes.x)


def pad_forward(call: Call) -> Run:
    ((_, runs, length, stride),) = _places(1, call.shapes.formats.y, call.shapes.y, call.shapes.x)
    copy: Command = copy_runs.command(
        source=call.x[0], target=call.y, runs=runs, length=length, step=length, stride=stride
    )
    if length == stride:
        return copy
    return together(
        [copy, zero_runs.command(target=_from(call.y, length), runs=runs, length=stride - length, stride=stride)]
    )


def pad_backward(call: Call) -> Run:
    ((_, runs, length, stride),) = _places(1, call.shapes.formats.y, call.shapes.y, call.shapes.x)
    (dx,) = call.dx
    assert dx is not None
    return copy_runs.command(source=call.dy, target=dx, runs=runs, length=length, step=stride, stride=length)
