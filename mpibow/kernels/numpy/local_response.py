"""Local response normalisation: sums over neighbour channels as sums of shifted views."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.ops import LocalResponseNorm


def buffers(op: LocalResponseNorm, shapes: Shapes) -> Buffers:
    like: Spec = (shapes.y, FLOAT)
    if not shapes.training:
        return Buffers(forward={"base": like, "part": like})
    return Buffers(saved={"base": like}, forward={"part": like}, backward={"part": like, "power": like})


def _shifts(source: Array, target: Array, before: int, after: int) -> list[tuple[Array, Array]]:
    """Pairs that make target[:, c] += source[:, c - before : c + after + 1], but for that at c itself."""
    channels = source.shape[1]
    pairs = []
    for shift in range(-min(before, channels - 1), min(after, channels - 1) + 1):
        here = slice(max(0, -shift), channels - max(0, shift))
        there = slice(max(0, shift), channels + min(0, shift))
        if shift:
            pairs.append((target[:, here], source[:, there]))
    return pairs


def forward(call: Call) -> Run:
    op, x, y, base, part = call.op, call.x[0], call.y, call.buffer("base"), call.scratch["part"]
    shifts = _shifts(part, base, op.size // 2, (op.size - 1) // 2)
    number = y.dtype.type

    def run() -> None:  # base = k + alpha / size sum(x^2)
        np.multiply(x, x, out=part)
        np.copyto(base, part)
        for target, source in shifts:
            np.add(target, source, out=target)
        np.multiply(base, number(op.alpha / op.size), out=base)
        np.add(base, number(op.k), out=base)
        np.power(base, number(-op.beta), out=part)
        np.multiply(x, part, out=y)

    return run


def backward(call: Call) -> Run:
    op, x, dy, dx, base = call.op, call.x[0], call.dy, call.dx[0], call.saved["base"]
    part, power = call.scratch["part"], call.scratch["power"]
    assert dx is not None
    shifts = _shifts(part, dx, (op.size - 1) // 2, op.size // 2)  # whose neighbour c is: the other way round
    number = dy.dtype.type

    def run() -> None:  # dy base^-beta - 2 alpha beta / size x sum(dy x base^(-beta - 1))
        np.power(base, number(-op.beta), out=power)
        np.multiply(power, dy, out=power)
        np.multiply(power, x, out=part)
        np.divide(part, base, out=part)
        np.copyto(dx, part)
        for target, source in shifts:
            np.add(target, source, out=target)
        np.multiply(dx, x, out=dx)
        np.multiply(dx, number(-2 * op.alpha * op.beta / op.size), out=dx)
        np.add(dx, power, out=dx)

    return run
