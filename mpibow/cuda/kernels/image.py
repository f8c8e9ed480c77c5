"""Launches of mixup and of the kernels that turn stored images into a network's input.

Stored images are canonical. Shares of mixup and the targets that it mixes are float32 in every precision.
"""

from math import prod

import numpy as np

from mpibow.graph import Array, Call, Formats, Op, Shapes, Tags
from mpibow.graph.formats import canonical
from mpibow.ops.mixup import larger_shares
from mpibow.ops.philox import stream

from .kernels import UNITS, Constant, Launches, integer, kind, launch, turns

JITTER = np.dtype(
    [(name, "f8") for name in ("brightness", "contrast", "saturation")] + [("limit", "f4"), ("limited", "i4")],
    align=True,
)


def _node(call: Call) -> np.uint32:
    return np.uint32(stream(call.name))


def _pixel(x: Array) -> str:
    """The C++ type of images, stored or not."""
    return "unsigned char" if x.dtype == np.uint8 else kind(x)


def window(call: Call, counters: Array | None, pad: int, flip: bool) -> Launches:
    x, y = call.x0, call.y
    (_, channels, height, width), (n, _, rows, columns) = x.shape, y.shape
    grid = (turns(channels * rows * columns)[0], n, 1)
    sizes = (channels, height, width, rows, columns)
    return launch("window", grid, x, counters, y, _node(call), *sizes, pad, flip, of=(UNITS[x.dtype.itemsize],))


def augment_forward(call: Call) -> Launches:
    return window(call, call.x[1], call.op.pad, call.op.flip)


def cutout_forward(call: Call) -> Launches:
    (x, counters), (n, channels, height, width) = call.x, call.shapes.y
    grid = (turns(channels * height * width)[0], n, 1)
    last = call.shapes.formats.y == "acdb"
    sizes = call.op.length, channels, height, width, last
    return launch("cutout", grid, x, counters, call.y, _node(call), *sizes, of=(UNITS[x.dtype.itemsize],))


def jitter_forward(call: Call) -> Launches:
    (x, counters), y, op = call.x, call.y, call.op
    settings = (op.brightness, op.contrast, op.saturation, op.limit or 0.0, op.limit is not None)
    rest = _node(call), np.array(settings, JITTER)[()], x.shape[1], prod(x.shape[2:])
    return launch("jitter", (1, len(x), 1), x, counters, y, *rest, of=(_pixel(x), kind(y)))


def normalise_formats(op: Op, shapes: Shapes, given: Tags) -> Formats:
    """From canonical to channels last, on the way."""
    return Formats((canonical(shapes.y),), "acdb" if len(shapes.y) == 4 else canonical(shapes.y))


def normalise_forward(call: Call) -> Launches:
    x = call.x0
    y = call.y
    op = call.op
    shape = call.shapes.y
    means = Constant(np.array(op.mean, np.float32))
    scales = Constant((1.0 / np.array(op.std, np.float64)).astype(np.float32))
    flags = shape[1], prod(shape[2:]), len(op.mean) != shape[1], call.shapes.formats.y == "acdb"
    return launch("normalise", turns(y.size), x, y, means, scales, *flags, np.int64(y.size), of=(_pixel(x), kind(y)))


def shares_forward(call: Call) -> Launches:
    table = Constant(larger_shares(call.op.alpha).astype(np.float32))
    return launch("mix_shares", turns(call.y.size), call.x0, table, call.y, _node(call), call.y.size)


def mix_forward(call: Call) -> Launches:
    (x, share), y, (samples, *sample) = call.x, call.y, call.shapes.y
    return launch("mix", turns(y.size), x, share, y, prod(sample), samples, np.int64(y.size), of=(kind(x),))


def one_hot_forward(call: Call) -> Launches:
    label, y = call.x0, call.y
    return launch("one_hot", turns(y.size), label, y, call.op.classes, np.int64(y.size), of=(integer(label),))
