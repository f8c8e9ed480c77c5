"""Launches of mixup and of the kernels that turn stored images into a network's input.

Stored images are canonical. Shares of mixup and the targets that it mixes are float32 in every precision.
"""

from __future__ import annotations

from math import prod

import numpy as np

from mpibow.cuda.kernels.kernels import UNITS, Constant, Launch, instance, integer, kind, turns
from mpibow.graph.formats import canonical
from mpibow.graph.graph import Array, Op
from mpibow.graph.kernel import Call, Formats, Shapes
from mpibow.ops.mixup import larger_shares
from mpibow.ops.philox import stream

JITTER = np.dtype(
    [(name, "f8") for name in ("brightness", "contrast", "saturation")] + [("limit", "f4"), ("limited", "i4")],
    align=True,
)


def _node(call: Call) -> np.uint32:
    return np.uint32(stream(call.name))


def _pixel(x: Array) -> str:
    """The C++ type of images, stored or not."""
    return "unsigned char" if x.dtype == np.uint8 else kind(x)


def _window(call: Call, counters: Array | None, pad: int, flip: bool) -> list[Launch]:
    x, y = call.x[0], call.y
    (_, channels, height, width), (n, _, rows, columns) = x.shape, y.shape
    arguments = (x, counters, y, _node(call), channels, height, width, rows, columns, pad, flip)
    unit = instance("window", UNITS[x.dtype.itemsize])
    return [Launch(unit, (turns(channels * rows * columns)[0], n, 1), arguments)]


def augment_forward(call: Call) -> list[Launch]:
    return _window(call, call.x[1], call.op.pad, call.op.flip)


def crop_forward(call: Call) -> list[Launch]:
    return _window(call, None, 0, False)


def cutout_formats(op: Op, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    tag = "acdb" if given[0] == "acdb" else canonical(shapes.y)
    return Formats((tag, "ab"), tag)


def cutout_forward(call: Call) -> list[Launch]:
    (x, counters), (n, channels, height, width) = call.x, call.shapes.y
    last = call.shapes.formats.y == "acdb"
    arguments = (x, counters, call.y, _node(call), call.op.length, channels, height, width, last)
    grid = (turns(channels * height * width)[0], n, 1)
    return [Launch(instance("cutout", UNITS[x.dtype.itemsize]), grid, arguments)]


def jitter_forward(call: Call) -> list[Launch]:
    (x, counters), y, op = call.x, call.y, call.op
    settings = (op.brightness, op.contrast, op.saturation, op.limit or 0.0, op.limit is not None)
    struct = np.array(settings, JITTER)[()]
    arguments = (x, counters, y, _node(call), struct, x.shape[1], prod(x.shape[2:]))
    return [Launch(instance("jitter", _pixel(x), kind(y)), (1, len(x), 1), arguments)]


def normalise_formats(op: Op, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    """From canonical to channels last, on the way."""
    return Formats((canonical(shapes.y),), "acdb" if len(shapes.y) == 4 else canonical(shapes.y))


def normalise_forward(call: Call) -> list[Launch]:
    x, y, op, shape = call.x[0], call.y, call.op, call.shapes.y
    means = Constant(np.array(op.mean, np.float32))
    scales = Constant((1.0 / np.array(op.std, np.float64)).astype(np.float32))
    flags = shape[1], prod(shape[2:]), len(op.mean) != shape[1], call.shapes.formats.y == "acdb"
    arguments = (x, y, means, scales, *flags, np.int64(y.size))
    return [Launch(instance("normalise", _pixel(x), kind(y)), turns(y.size), arguments)]


def shares_forward(call: Call) -> list[Launch]:
    table = Constant(larger_shares(call.op.alpha).astype(np.float32))
    arguments = (call.x[0], table, call.y, _node(call), call.y.size)
    return [Launch("mix_shares", turns(call.y.size), arguments)]


def mix_formats(op: Op, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    return Formats((given[0], "a"), given[0])


def mix_forward(call: Call) -> list[Launch]:
    (x, share), y, (samples, *sample) = call.x, call.y, call.shapes.y
    arguments = (x, share, y, prod(sample), samples, np.int64(y.size))
    return [Launch(instance("mix", kind(x)), turns(y.size), arguments)]


def one_hot_forward(call: Call) -> list[Launch]:
    label, y = call.x[0], call.y
    return [Launch(instance("one_hot", integer(label)), turns(y.size), (label, y, call.op.classes, np.int64(y.size)))]
