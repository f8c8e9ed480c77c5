"""Launches of layer normalisation and local response normalisation."""

from math import prod

import numpy as np

from mpibow.graph import Buffers, Call, Shapes, Spec
from mpibow.ops import LayerNorm
from mpibow.ops.wide import WideLayerNorm

from .kernels import THREADS, WARP, Grid, Launch, Launches, instance, kind, launch, turns, warps
from .layout import around

COLUMNS: Grid = (WARP, THREADS // WARP, 1)  # the threads of a block that adds up WARP columns


def _extents(op: LayerNorm, shapes: Shapes) -> tuple[int, int, int, int]:
    """Rows and features; rows one after the other that share weights, and the replicas that take turns."""
    y, k = shapes.y, getattr(op, "replicas", 1)
    features = prod((y[1] // k, *y[2:])[-op.axes :])
    rows = prod(y) // features
    return rows, features, op.rows(y) if isinstance(op, WideLayerNorm) else rows, k


def layer_buffers(op: LayerNorm, shapes: Shapes) -> Buffers:
    column: Spec = ((_extents(op, shapes)[0],), "float32")
    return Buffers(saved={"mean": column, "inverse": column})


def layer_forward(call: Call) -> Launches:
    x = call.x0
    w = call.w
    saved = call.saved
    extents = _extents(call.op, call.shapes)
    rest = call.y, saved["mean"], saved["inverse"], float(call.op.epsilon), *extents
    return launch("layer_norm", warps(extents[0]), x, w["weight"], w["bias"], *rest, of=(kind(x),))


def layer_backward(call: Call) -> Launches:
    x = call.x0
    dw = call.dw
    dx = call.dx[0]
    mean = call.saved["mean"]
    inverse = call.saved["inverse"]
    rows, features, group, replicas = _extents(call.op, call.shapes)
    launches = [
        Launch(
            instance("layer_norm_weights", kind(x)),
            (-(-features // WARP), 1, replicas),
            (call.dy, x, mean, inverse, dw["weight"], dw["bias"], rows // replicas, features, group, replicas),
            COLUMNS,
        )
    ]
    if dx is not None:
        rest = (mean, inverse, dx, rows, features, group, replicas)
        launches += launch("layer_norm_back", warps(rows), call.dy, x, call.w["weight"], *rest, of=(kind(x),))
    return launches


def _places(call: Call) -> tuple[int, int, np.int64]:
    """Channels of a replica, elements from one to the next, and all elements."""
    outer, channels, inner = around(call, 1, call.shapes.y)
    return channels // getattr(call.op, "replicas", 1), inner, np.int64(outer * channels * inner)


def response_forward(call: Call) -> Launches:
    op, x = call.op, call.x0
    rest = op.size, float(op.alpha), float(op.beta), float(op.k), *_places(call)
    return launch("local_response", turns(x.size), x, call.y, call.saved["base"], *rest, of=(kind(x),))


def response_backward(call: Call) -> Launches:
    op, x = call.op, call.x0
    rest = call.saved["base"], call.dx0, op.size, float(op.alpha), float(op.beta), *_places(call)
    return launch("local_response_back", turns(x.size), call.dy, x, *rest, of=(kind(x),))
