"""Batch norm by the statistics of all learners of a rank: they meet once in forward and once in backward.

Each learner has its own weights; the gradient is that of the sum of all their losses. A norm whose `sync` is "learner"
has the same forward, alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibow.graph.graph import FLOAT, Array, Shape
from mpibow.graph.kernel import ALONE, Buffers, Call, Run


def buffers(shape: Shape) -> Buffers:
    """The buffers of training on (n, c, ...)."""
    channel = ((shape[1],), FLOAT)
    pair = ((2, shape[1]), FLOAT)
    return Buffers(
        saved={"mean": channel, "inverse": channel},
        forward={"normal": (shape, FLOAT), "variance": channel, "part": channel},
        backward={"normal": (shape, FLOAT), "part": (shape, FLOAT), "sums": pair},
    )


def rows(array: Array) -> Array:
    """(n, c, ...) as (n, c, positions)."""
    return array.reshape(*array.shape[:2], -1)


def forward(call: Call) -> Run:
    op, x, y, normal = call.op, rows(call.x0), rows(call.y), rows(call.scratch["normal"])
    mean, inverse, own = call.saved["mean"], call.saved["inverse"], np.zeros((2, x.shape[1]), y.dtype)
    variance, part = call.scratch["variance"], call.scratch["part"]
    weight, bias = call.w["weight"][:, None], call.w["bias"][:, None]
    running_mean, running_variance = call.statistics["mean"], call.statistics["variance"]
    count, momentum = x.shape[0] * x.shape[2], op.momentum
    meet = (call.peers if op.sync == "rank" else ALONE).show(f"{call.name} forward", own)

    def merge(learners: Sequence[Array]) -> None:
        """mean, and variance times the number of values, <- those of all learners."""
        nonlocal mean, part, variance
        mean.fill(0)
        for moments in learners:
            mean += moments[0]
        mean *= 1 / len(learners)
        variance.fill(0)
        for moments in learners:  # squares around its own mean, and that mean's distance from the common one
            np.subtract(moments[0], mean, out=part)
            part *= part
            part *= count
            variance += part
            variance += moments[1]

    def run() -> None:
        nonlocal normal, part, running_mean, running_variance, variance, y
        np.sum(x, axis=(0, 2), out=own[0])
        own[0] *= 1 / count
        np.subtract(x, own[0][:, None], out=normal)
        np.multiply(normal, normal, out=y)  # y is scratch until it is written
        np.sum(y, axis=(0, 2), out=own[1])
        learners = meet()
        total = len(learners) * count
        if len(learners) == 1:
            mean[:], variance[:] = own
        else:
            merge(learners)
            np.subtract(x, mean[:, None], out=normal)
        variance *= 1 / total
        np.add(variance, op.epsilon, out=inverse)
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        normal *= inverse[:, None]
        np.multiply(normal, weight, out=y)
        y += bias
        running_mean *= 1 - momentum
        np.multiply(mean, momentum, out=part)
        running_mean += part
        running_variance *= 1 - momentum
        variance *= momentum * total / max(total - 1, 1)
        running_variance += variance

    return run


def backward(call: Call) -> Run:
    x, dy, normal, part = rows(call.x0), rows(call.dy), rows(call.scratch["normal"]), rows(call.scratch["part"])
    mean, inverse, sums = call.saved["mean"], call.saved["inverse"], call.scratch["sums"]
    own = np.zeros_like(sums)
    weight, dweight, dbias = call.w["weight"], call.dw["weight"], call.dw["bias"]
    dx = None if call.dx[0] is None else rows(call.dx[0])
    count = dy.shape[0] * dy.shape[2]
    meet = call.peers.show(f"{call.name} backward", own)

    def run() -> None:  # with dz = weight dy: dx = (dz - mean(dz) - normal mean(dz normal)) / deviation, means of all
        nonlocal dx, normal, sums
        np.subtract(x, mean[:, None], out=normal)
        normal *= inverse[:, None]
        np.sum(dy, axis=(0, 2), out=dbias)
        np.multiply(dy, normal, out=part)
        np.sum(part, axis=(0, 2), out=dweight)
        if dx is None:
            return
        np.multiply(weight, dbias, out=own[0])
        np.multiply(weight, dweight, out=own[1])
        learners = meet()
        sums.fill(0)
        for products in learners:
            sums += products
        sums *= 1 / (len(learners) * count)
        normal *= sums[1][:, None]
        normal += sums[0][:, None]
        np.multiply(dy, weight[:, None], out=part)
        np.subtract(part, normal, out=dx)
        dx *= inverse[:, None]

    return run
