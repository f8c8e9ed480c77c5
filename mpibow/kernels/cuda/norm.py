"""Launches of layer normalisation, local response normalisation and sums of columns."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from mpibow.graph.formats import parse, physical
from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Shapes, Spec
from mpibow.kernels.cuda.kernels import THREADS, WARP, Grid, Launch, instance, kind, turns, warps

COLUMNS: Grid = (WARP, THREADS // WARP, 1)  # the threads of a block that adds up WARP columns
PARTS = 64  # of so many rows and fewer one block adds up all; more are cut into so many parts at most


def _rows(op: Any, shapes: Shapes) -> tuple[int, int]:
    features = prod(shapes.y[-op.axes :])
    return prod(shapes.y) // features, features


def layer_buffers(op: Any, shapes: Shapes) -> Buffers:
    column: Spec = ((_rows(op, shapes)[0],), "float32")
    moments = {"mean": column, "inverse": column}
    return Buffers(saved=moments) if shapes.training else Buffers(forward=moments)


def _own(array: Array, features: int, rows: int) -> tuple[np.int32, np.int64]:
    """Rows that share weights, and elements from one replica's to the next.

    `array` is the features' shape, or has an axis of replicas before it.
    """
    flat = array.reshape(-1) if array.size == features else array
    replicas, stride = (1, 0) if flat.ndim == 1 else (len(flat), flat.strides[0] // flat.itemsize)
    return np.int32(rows // replicas), np.int64(stride)


def layer_forward(call: Call) -> list[Launch]:
    (x, *_), w = call.x, call.w
    rows, features = _rows(call.op, call.shapes)
    moments = call.buffer("mean"), call.buffer("inverse"), np.float32(call.op.epsilon)
    extents = (np.int32(rows), np.int32(features), *_own(w["weight"], features, rows))
    arguments = (x, w["weight"], w["bias"], call.y, *moments, *extents)
    return [Launch(instance("layer_norm", kind(x)), warps(rows), arguments)]


def layer_backward(call: Call) -> list[Launch]:
    (x, *_), w, dw, dx = call.x, call.w, call.dw, call.dx[0]
    rows, features = _rows(call.op, call.shapes)
    mean, inverse = call.saved["mean"], call.saved["inverse"]
    group, stride = _own(dw["weight"], features, rows)
    launches = [
        Launch(
            instance("layer_norm_weights", kind(x)),
            (-(-features // WARP), 1, rows // int(group)),
            (call.dy, x, mean, inverse, dw["weight"], dw["bias"], group, np.int32(features), stride),
            COLUMNS,
        )
    ]
    if dx is not None:
        extents = (np.int32(rows), np.int32(features), *_own(w["weight"], features, rows))
        arguments = (call.dy, x, w["weight"], mean, inverse, dx, *extents)
        launches.append(Launch(instance("layer_norm_back", kind(x)), warps(rows), arguments))
    return launches


def parts_of(rows: int) -> int:
    """Into how many parts the rows of a sum of columns are cut: a function of their number only, so bits repeat."""
    return min(-(-rows // PARTS), PARTS)


def column_sums(x: Array, out: Array, parts: Array | None) -> list[Launch]:
    """out (replicas, columns) float32 <- the sums of x (replicas, rows, columns), a bias's gradient.

    Where parts_of(rows) is more than 1, `parts` (replicas, that, columns) float32 is scratch.
    """
    replicas, rows, columns = x.shape
    count, stride = parts_of(rows), np.int64(out.strides[0] // out.itemsize)
    grid = (-(-columns // WARP), count, replicas)
    kernel, extents = instance("column_sums", kind(x)), (np.int32(rows), np.int32(columns))
    if count == 1:
        return [Launch(kernel, grid, (x, out, *extents, stride), COLUMNS)]
    rest = (parts, out, np.int32(count), np.int32(columns), stride)
    return [
        Launch(kernel, grid, (x, parts, *extents, np.int64(count * columns)), COLUMNS),
        Launch("column_sums<float>", (grid[0], 1, replicas), rest, COLUMNS),
    ]


def response_buffers(op: Any, shapes: Shapes) -> Buffers:
    base = {"base": (shapes.y, "float32")}
    return Buffers(saved=base) if shapes.training else Buffers(forward=base)


def _places(call: Call) -> tuple[np.int32, np.int32, np.int64]:
    """Channels, elements from one to the next, and all elements."""
    tag, shape = call.shapes.formats.y, call.shapes.y
    inner = prod(physical(tag, shape)[parse(tag)[0].index(1) + 1 :])
    return np.int32(shape[1]), np.int32(inner), np.int64(prod(shape))


def response_forward(call: Call) -> list[Launch]:
    op, x = call.op, call.x[0]
    settings = np.int32(op.size), np.float32(op.alpha), np.float32(op.beta), np.float32(op.k)
    arguments = (x, call.y, call.buffer("base"), *settings, *_places(call))
    return [Launch(instance("local_response", kind(x)), turns(x.size), arguments)]


def response_backward(call: Call) -> list[Launch]:
    op, x = call.op, call.x[0]
    settings = np.int32(op.size), np.float32(op.alpha), np.float32(op.beta)
    arguments = (call.dy, x, call.saved["base"], call.dx[0], *settings, *_places(call))
    return [Launch(instance("local_response_back", kind(x)), turns(x.size), arguments)]
