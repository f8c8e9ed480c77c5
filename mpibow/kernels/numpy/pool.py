"""Pooling, one window element at a time: each is a strided view of the image."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.ops import AvgPool2d, MaxPool2d


def _elements(op: MaxPool2d | AvgPool2d, image: Array, rows: int, columns: int) -> list[Array]:
    """For every element of the window, row by row, the view (n, c, rows, columns) of image (n, c, h, w)."""
    (kh, kw), (sh, sw) = op.kernel, op.stride
    return [
        image[:, :, a : a + sh * (rows - 1) + 1 : sh, b : b + sw * (columns - 1) + 1 : sw]
        for a in range(kh)
        for b in range(kw)
    ]


def max_buffers(op: MaxPool2d, shapes: Shapes) -> Buffers:
    small = "uint8" if op.kernel[0] * op.kernel[1] <= 256 else "uint16"
    winner, mask = {"winner": (shapes.y, small)}, {"mask": (shapes.y, "bool")}
    if not shapes.training:
        return Buffers(forward={**winner, **mask})
    return Buffers(saved=winner, forward=mask, backward={**mask, "part": (shapes.y, "float")})


def max_forward(call: Call) -> Run:
    y, winner, mask = call.y, call.buffer("winner"), call.scratch["mask"]
    first, *rest = _elements(call.op, call.x[0], *y.shape[2:])
    numbered = [(winner.dtype.type(i), element) for i, element in enumerate(rest, 1)]

    def run() -> None:
        np.copyto(y, first)
        winner.fill(0)
        for i, element in numbered:
            np.greater(element, y, out=mask)
            np.copyto(winner, i, where=mask)
            np.maximum(y, element, out=y)  # maximum, unlike a masked copy, lets NaN through

    return run


def max_backward(call: Call) -> Run:
    dy, dx, winner = call.dy, call.dx[0], call.saved["winner"]
    mask, part = call.scratch["mask"], call.scratch["part"]
    assert dx is not None
    numbered = [(winner.dtype.type(i), element) for i, element in enumerate(_elements(call.op, dx, *dy.shape[2:]))]

    def run() -> None:
        dx.fill(0)
        for i, element in numbered:
            np.equal(winner, i, out=mask)
            np.multiply(dy, mask, out=part)
            np.add(element, part, out=element)

    return run


def avg_forward(call: Call) -> Run:
    y, elements = call.y, _elements(call.op, call.x[0], *call.y.shape[2:])
    scale = y.dtype.type(1.0 / len(elements))

    def run() -> None:
        np.copyto(y, elements[0])
        for element in elements[1:]:
            np.add(y, element, out=y)
        np.multiply(y, scale, out=y)

    return run


def avg_buffers(op: AvgPool2d, shapes: Shapes) -> Buffers:
    return Buffers(backward={"part": (shapes.y, "float")})


def avg_backward(call: Call) -> Run:
    dy, dx, part = call.dy, call.dx[0], call.scratch["part"]
    assert dx is not None
    elements = _elements(call.op, dx, *dy.shape[2:])
    scale = dy.dtype.type(1.0 / len(elements))

    def run() -> None:
        np.multiply(dy, scale, out=part)
        dx.fill(0)
        for element in elements:
            np.add(element, part, out=element)

    return run
