"""Launches of layer normalisation, local response normalisation and sums of columns."""

from math import prod

import numpy as np

from mpibow.graph.formats import parse, physical
from mpibow.graph.graph import Array, Op
from mpibow.graph.kernel import Buffers, Call, Shapes, Spec
from mpibow.ops import LayerNorm
from mpibow.ops.wide import WideLayerNorm

from .kernels import THREADS, WARP, Grid, Launch, Launches, instance, kind, launch, turns, warps

COLUMNS: Grid = (WARP, THREADS // WARP, 1)  # the threads of a block that adds up WARP columns
PARTS = 64  # of so many rows and fewer one block adds up all; more are cut into so many parts at most


def _rows(op: LayerNorm, shapes: Shapes) -> tuple[int, int]:
    y = shapes.y
    if isinstance(op, WideLayerNorm):
        y = (y[0] * op.replicas, y[1] // op.replicas, *y[2:])
    features = prod(y[-op.axes :])
    return prod(y) // features, features


def layer_buffers(op: LayerNorm, shapes: Shapes) -> Buffers:
    column: Spec = ((_rows(op, shapes)[0],), "float32")
    return Buffers(saved={"mean": column, "inverse": column})


def _own(call: Call, array: Array) -> tuple[int, int, np.int64]:
    """Rows one after the other that share weights, the replicas that take turns, and elements from one's to the next's.

    `array` is the features' shape, or has an axis of replicas before it; of a wide operator they are side by side.
    """
    rows, features = _rows(call.op, call.shapes)
    if isinstance(call.op, WideLayerNorm):
        return call.op.rows(call.shapes.y), call.op.replicas, np.int64(features)
    flat = array.reshape(-1) if array.size == features else array
    replicas, stride = (1, 0) if flat.ndim == 1 else (len(flat), flat.strides[0] // flat.itemsize)
    return rows // replicas, replicas, np.int64(stride)


def layer_forward(call: Call) -> Launches:
    (x, *_), w = call.x, call.w
    rows, features = _rows(call.op, call.shapes)
    moments = call.saved["mean"], call.saved["inverse"], float(call.op.epsilon)
    rest = (call.y, *moments, rows, features, *_own(call, w["weight"]))
    return launch("layer_norm", warps(rows), x, w["weight"], w["bias"], *rest, of=(kind(x),))


def layer_backward(call: Call) -> Launches:
    (x, *_), w, dw, dx = call.x, call.w, call.dw, call.dx[0]
    rows, features = _rows(call.op, call.shapes)
    mean, inverse = call.saved["mean"], call.saved["inverse"]
    group, replicas, stride = _own(call, dw["weight"])
    launches = [
        Launch(
            instance("layer_norm_weights", kind(x)),
            (-(-features // WARP), 1, replicas),
            (call.dy, x, mean, inverse, dw["weight"], dw["bias"], rows // replicas, features, group, replicas, stride),
            COLUMNS,
        )
    ]
    if dx is not None:
        rest = (mean, inverse, dx, rows, features, *_own(call, w["weight"]))
        launches += launch("layer_norm_back", warps(rows), call.dy, x, w["weight"], *rest, of=(kind(x),))
    return launches


def parts_of(rows: int) -> int:
    """The number of parts that a sum of columns cuts its rows into: a function of their number only, so bits repeat."""
    return min(-(-rows // PARTS), PARTS)


def column_sums(x: Array, out: Array, parts: Array | None) -> Launches:
    """out (replicas, columns) float32 <- the sums of x (replicas, rows, columns), a bias's gradient.

    Where parts_of(rows) is more than 1, `parts` (replicas, that, columns) float32 is scratch.
    """
    replicas, rows, columns = x.shape
    count, stride = parts_of(rows), np.int64(out.strides[0] // out.itemsize)
    grid = (-(-columns // WARP), count, replicas)
    kernel, extents = instance("column_sums", kind(x)), (rows, columns)
    if count == 1:
        return [Launch(kernel, grid, (x, out, *extents, stride), COLUMNS)]
    rest = (parts, out, count, columns, stride)
    return [
        Launch(kernel, grid, (x, parts, *extents, np.int64(count * columns)), COLUMNS),
        Launch("column_sums<float>", (grid[0], 1, replicas), rest, COLUMNS),
    ]


def response_buffers(op: Op, shapes: Shapes) -> Buffers:
    return Buffers(saved={"base": (shapes.y, "float32")})


def _places(call: Call) -> tuple[int, int, np.int64]:
    """Channels of a replica, elements from one to the next, and all elements."""
    tag, shape = call.shapes.formats.y, call.shapes.y
    inner = prod(physical(tag, shape)[parse(tag)[0].index(1) + 1 :])
    channels = shape[1] // getattr(call.op, "replicas", 1)
    return channels, inner, np.int64(prod(shape))


def response_forward(call: Call) -> Launches:
    op, x = call.op, call.x0
    rest = op.size, float(op.alpha), float(op.beta), float(op.k), *_places(call)
    return launch("local_response", turns(x.size), x, call.y, call.saved["base"], *rest, of=(kind(x),))


def response_backward(call: Call) -> Launches:
    op, x = call.op, call.x0
    rest = call.saved["base"], call.dx0, op.size, float(op.alpha), float(op.beta), *_places(call)
    return launch("local_response_back", turns(x.size), call.dy, x, *rest, of=(kind(x),))
