"""Sums, products, maxima and concatenations of several tensors, and of one with zeros."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.ops import Add, Concat, Maximum


def sum_forward(call: Call) -> Run:
    y, (first, second, *rest) = call.y, call.x

    def run() -> None:
        np.add(first, second, out=y)
        for x in rest:
            np.add(y, x, out=y)

    return run


def add_buffers(op: Add, shapes: Shapes) -> Buffers:
    scaled = any(c != 1.0 for c in op.coefficients[1:])
    return Buffers(forward={"part": (shapes.y, FLOAT)} if scaled else {})


def add_forward(call: Call) -> Run:
    if all(c == 1.0 for c in call.op.coefficients):
        return sum_forward(call)
    y = call.y
    (c0, x0), *others = [(y.dtype.type(c), x) for c, x in zip(call.op.coefficients, call.x, strict=True)]
    rest = [(c, x, None if c == 1.0 else call.scratch["part"]) for c, x in others]

    def run() -> None:
        np.multiply(x0, c0, out=y)
        for c, x, part in rest:
            if part is None:
                np.add(y, x, out=y)
            else:
                np.multiply(x, c, out=part)
                np.add(y, part, out=y)

    return run


def add_backward(call: Call) -> Run:
    dy = call.dy
    pairs = [(dy.dtype.type(c), dx) for c, dx in zip(call.op.coefficients, call.dx, strict=True) if dx is not None]

    def run() -> None:
        for c, dx in pairs:
            np.multiply(dy, c, out=dx)

    return run


def multiply_forward(call: Call) -> Run:
    y, (first, second, *rest) = call.y, call.x

    def run() -> None:
        np.multiply(first, second, out=y)
        for x in rest:
            np.multiply(y, x, out=y)

    return run


def multiply_backward(call: Call) -> Run:
    dy = call.dy
    others = [(dx, [*call.x[:i], *call.x[i + 1 :]]) for i, dx in enumerate(call.dx) if dx is not None]

    def run() -> None:  # without dividing y by x: x may be 0
        for dx, (first, *rest) in others:
            np.multiply(dy, first, out=dx)
            for x in rest:
                np.multiply(dx, x, out=dx)

    return run


def maximum_buffers(op: Maximum, shapes: Shapes) -> Buffers:
    if not shapes.training:
        return Buffers()
    mask: dict[str, Spec] = {"mask": (shapes.y, "bool")}
    small = "uint8" if op.inputs <= 256 else "uint16"
    return Buffers(saved={"winner": (shapes.y, small)}, forward=mask, backward=mask)


def maximum_forward(call: Call) -> Run:
    y, (first, *rest) = call.y, call.x
    winner, mask = call.saved.get("winner"), call.scratch.get("mask")

    def run() -> None:
        np.maximum(first, rest[0], out=y)  # maximum, unlike a masked copy, lets NaN through
        for x in rest[1:]:
            np.maximum(y, x, out=y)

    if winner is None:
        return run
    numbered = [(winner.dtype.type(i), x) for i, x in enumerate(rest, 1)]

    def run_and_keep_the_winner() -> None:
        np.copyto(y, first)
        winner.fill(0)
        for i, x in numbered:
            np.greater(x, y, out=mask)
            np.copyto(winner, i, where=mask)
            np.maximum(y, x, out=y)

    return run_and_keep_the_winner


def maximum_backward(call: Call) -> Run:
    dy, winner, mask = call.dy, call.saved["winner"], call.scratch["mask"]
    numbered = [(winner.dtype.type(i), dx) for i, dx in enumerate(call.dx) if dx is not None]

    def run() -> None:
        for i, dx in numbered:
            np.equal(winner, i, out=mask)
            np.multiply(dy, mask, out=dx)

    return run


def _parts(op: Concat, whole: Array, extents: list[int]) -> list[Array]:
    """The views of `whole` that hold the inputs."""
    cuts = np.cumsum(extents)[:-1].tolist()
    return np.split(whole, cuts, axis=op.axis)


def concat_forward(call: Call) -> Run:
    parts = _parts(call.op, call.y, [x.shape[call.op.axis] for x in call.x])
    pairs = list(zip(parts, call.x, strict=True))

    def run() -> None:
        for part, x in pairs:
            np.copyto(part, x)

    return run


def concat_backward(call: Call) -> Run:
    parts = _parts(call.op, call.dy, [x.shape[call.op.axis] for x in call.x])
    pairs = [(dx, part) for dx, part in zip(call.dx, parts, strict=True) if dx is not None]

    def run() -> None:
        for dx, part in pairs:
            np.copyto(dx, part)

    return run


def pad_forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    here, zeros = y[:, : x.shape[1]], y[:, x.shape[1] :]

    def run() -> None:  # zeros every time: y's memory is others' between runs
        np.copyto(here, x)
        zeros.fill(0)

    return run


def pad_backward(call: Call) -> Run:
    (dx,) = call.dx
    assert dx is not None
    here = call.dy[:, : dx.shape[1]]
    return lambda: np.copyto(dx, here)
