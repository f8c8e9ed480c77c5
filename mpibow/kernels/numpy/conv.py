"""Convolution as one matrix product a group over columns, images innermost so that copies run over long stretches.

With t for "image index last": xt (c, h, w, n); with g groups, its products are of weight (g, o / g, c / g * kh * kw),
columns (g, c / g * kh * kw, h' * w' * n) and yt (g, o / g, h' * w' * n).
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.ops import Conv2d


def buffers(op: Conv2d, shapes: Shapes) -> Buffers:
    n, c, h, w = shapes.x[0]
    o, rows, columns = shapes.y[1:]
    padded: Spec = ((c, h + 2 * op.padding[0], w + 2 * op.padding[1], n), FLOAT)
    g = op.groups
    cols: Spec = ((g, c // g * op.kernel[0] * op.kernel[1], rows * columns * n), FLOAT)
    product: Spec = ((g, o // g, rows * columns * n), FLOAT)
    if not shapes.training:
        return Buffers(forward={"xt": padded, "cols": cols, "yt": product})
    return Buffers(
        saved={"cols": cols},
        forward={"xt": padded, "yt": product},
        backward={"dxt": padded, "dcols": cols, "dyt": product},
    )


def _windows(op: Conv2d, image: Array, rows: int, columns: int) -> Array:
    """image (c, h, w, n) seen as (c, kh, kw, rows, columns, n): every window, overlapping where the kernel does."""
    c, _, _, n = image.shape
    sc, sh, sw, sn = image.strides
    shape = (c, *op.kernel, rows, columns, n)
    (dh, dw), (step_h, step_w) = op.dilation, op.stride
    return as_strided(image, shape, (sc, sh * dh, sw * dw, sh * step_h, sw * step_w, sn))


def _inside(op: Conv2d, image: Array) -> Array:
    """The unpadded part of image (c, h, w, n), as (n, c, h, w)."""
    (ph, pw), (_, h, w, _) = op.padding, image.shape
    return image[:, ph : h - ph, pw : w - pw].transpose(3, 0, 1, 2)


def forward(call: Call) -> Run:
    op, x, y, bias = call.op, call.x[0], call.y, call.w.get("bias")
    xt, cols, yt = call.scratch["xt"], call.buffer("cols"), call.scratch["yt"]
    weight = call.w["weight"].reshape(op.groups, y.shape[1] // op.groups, -1)
    n, o, rows, columns = y.shape
    windows = _windows(op, xt, rows, columns)
    inside, cols6 = _inside(op, xt), cols.reshape(windows.shape)
    product = yt.reshape(o, rows, columns, n).transpose(3, 0, 1, 2)
    padded = max(op.padding) > 0
    bias4 = None if bias is None else bias.reshape(1, -1, 1, 1)

    def run() -> None:
        if padded:
            xt.fill(0)
        np.copyto(inside, x)
        np.copyto(cols6, windows)
        np.matmul(weight, cols, out=yt)
        if bias4 is None:
            np.copyto(y, product)
        else:
            np.add(product, bias4, out=y)

    return run


def backward(call: Call) -> Run:
    op, dy, dx = call.op, call.dy, call.dx[0]
    dxt, dcols, dyt, cols = call.scratch["dxt"], call.scratch["dcols"], call.scratch["dyt"], call.saved["cols"]
    n, o, rows, columns = dy.shape
    grouped = (op.groups, o // op.groups, -1)
    weight, dweight = call.w["weight"].reshape(grouped), call.dw["weight"].reshape(grouped)
    weight_t, cols_t = weight.transpose(0, 2, 1), cols.transpose(0, 2, 1)
    dbias, flat = call.dw.get("bias"), dyt.reshape(o, -1)
    dproduct = dyt.reshape(o, rows, columns, n).transpose(3, 0, 1, 2)
    windows = _windows(op, dxt, rows, columns)
    dcols6, inside = dcols.reshape(windows.shape), _inside(op, dxt)
    # One pair of views per kernel element: windows of one element never overlap, so += is safe.
    pairs = [(windows[:, a, b], dcols6[:, a, b]) for a in range(op.kernel[0]) for b in range(op.kernel[1])]

    def run() -> None:
        np.copyto(dproduct, dy)
        np.matmul(dyt, cols_t, out=dweight)
        if dbias is not None:
            np.sum(flat, axis=1, out=dbias)
        if dx is not None:
            np.matmul(weight_t, dyt, out=dcols)
            dxt.fill(0)
            for target, source in pairs:
                np.add(target, source, out=target)
            np.copyto(dx, inside)

    return run
