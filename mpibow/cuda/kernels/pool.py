"""Launches of pooling, images with channels last."""

import numpy as np

from mpibow.cuda.device.array import PlanArray
from mpibow.graph import Array, Buffers, Call, Formats, Op, Shape, Shapes, Tags
from mpibow.graph.formats import canonical, physical
from mpibow.ops import AdaptiveAvgPool2d, GlobalAvgPool2d

from .kernels import Launches, kind, lanes, launch, turns

SIDE = np.dtype([(name, "i4") for name in ("extent", "count", "kernel", "stride", "pad")])
WINDOWS = np.dtype([("rows", SIDE), ("columns", SIDE), ("channels", "i4"), ("counts_padding", "i4")])


def formats(op: Op, shapes: Shapes, given: Tags) -> Formats:
    return Formats(("acdb",), "acdb" if len(shapes.y) == 4 else canonical(shapes.y))


def windows(op: Op, x: Shape, y: Shape) -> Array:
    """The struct of that name; global pooling is one adaptive window."""
    extents, counts = x[2:], y[2:] or (1, 1)
    kernel, stride, pad = (getattr(op, name, (0, 0)) for name in ("kernel", "stride", "padding"))
    sides = list(zip(extents, counts, kernel, stride, pad, strict=True))
    return np.array((*sides, x[1], getattr(op, "count_padding", True)), WINDOWS)[()]


def _launch(kernel: str, call: Call, shape: Shape, *arrays: PlanArray, of: tuple[str, ...] = ()) -> Launches:
    """A thread takes several channels of an array (shape) at once if their number is a multiple, else one."""
    x, channels = call.shapes.x[0], call.shapes.x[0][1]
    v = lanes(arrays[0].dtype)
    v = v if channels % v == 0 else 1
    count = int(np.prod(shape))
    assert count < 1 << 31, shape  # places are counted in 32 bits
    types = (*of, kind(arrays[0]), str(v))
    return launch(kernel, turns(count, v), *arrays, windows(call.op, x, call.shapes.y), x[0], of=types)


def max_buffers(op: Op, shapes: Shapes) -> Buffers:
    return Buffers(saved={"winner": (physical("acdb", shapes.y), "uint16")})


def max_forward(call: Call) -> Launches:
    return _launch("max_pool", call, call.shapes.y, call.x0, call.y, call.saved["winner"])


def max_backward(call: Call) -> Launches:
    return _launch("max_pool_back", call, call.shapes.x[0], call.dy, call.saved["winner"], call.dx0)


def _windows_of(op: Op) -> tuple[str]:
    return ("Adaptive" if isinstance(op, AdaptiveAvgPool2d | GlobalAvgPool2d) else "Sliding",)


def average_forward(call: Call) -> Launches:
    return _launch("average", call, call.shapes.y, call.x0, call.y, of=_windows_of(call.op))


def average_backward(call: Call) -> Launches:
    return _launch("average_back", call, call.shapes.x[0], call.dy, call.dx0, of=_windows_of(call.op))
