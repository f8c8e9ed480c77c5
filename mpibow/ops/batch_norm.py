"""Batch normalisation (Ioffe and Szegedy, arXiv:1502.03167)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec
from mpibow.ops import norm_of_rank
from mpibow.ops.initialisers import ONE, ZERO
from mpibow.ops.norm_of_rank import rows as _rows

__all__ = ["BatchNorm", "batch_norm"]

Sync = Literal["learner", "rank"]


@dataclass(frozen=True)
class BatchNorm(Op):
    """y = weight (x - mean) / sqrt(variance + epsilon) + bias, per channel (axis 1), algorithm 1 of the paper.

    In training mean and variance (biased) are the batch's, or with `sync` "rank" those of the batches of all its
    learners, and the running ones move towards them by `momentum`, the variance unbiased, as PyTorch has it; in
    evaluation, and where it is `frozen`, the running ones are taken and stay.
    """

    epsilon: float
    momentum: float
    initial: Initialiser = ONE
    initial_bias: Initialiser = ZERO
    frozen: bool = False
    sync: Sync = "learner"
    kind = "batch_norm"
    reads = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) < 2:
            raise ShapeError("input must be (batch, channels, ...)")
        return x

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        channels = (shapes[0][1],)
        return {
            "weight": Weight(channels, self.initial, channels[0], channels[0], decay=False),
            "bias": Weight(channels, self.initial_bias, channels[0], channels[0], decay=False),
        }

    def statistics(self, *shapes: Shape) -> Mapping[str, Weight]:
        channels = (shapes[0][1],)
        return {
            "mean": Weight(channels, ZERO, channels[0], channels[0], decay=False, trained=not self.frozen),
            "variance": Weight(channels, ONE, channels[0], channels[0], decay=False, trained=not self.frozen),
        }

    def untrained(self) -> BatchNorm:
        return replace(self, frozen=True, sync="learner")


def batch_norm(
    x: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.1,
    frozen: bool = False,
    sync: Sync = "learner",
    initial: Initialiser = ONE,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, c, ...) normalised per channel; `momentum` is the share of the new batch in the running statistics.

    A `frozen` norm uses the running statistics in training too, and never updates them; its weight and bias are
    trained. With `sync` "rank" all learners of a rank share the statistics of their batches, and wait for one
    another in each norm; on CPUs only. The weight starts as `initial`, the bias as `initial_bias`.
    """
    if epsilon <= 0 or not 0 < momentum <= 1:
        raise ShapeError(
            f"batch_norm of {x.name}: epsilon must be above 0 and momentum in (0, 1], got {epsilon} and {momentum}"
        )
    if sync not in get_args(Sync) or (frozen and sync == "rank"):
        rule = "sync must be 'learner' or 'rank'" if sync not in get_args(Sync) else "a frozen norm has nothing to sync"
        raise ShapeError(f"batch_norm of {x.name}: {rule}, got frozen={frozen} and sync={sync!r}")
    return x.graph.add(BatchNorm(epsilon, momentum, initial, initial_bias, frozen, sync), x, name=name)


# The reference kernels: a channel at a time being one row of (n, c, positions).


def buffers(op: BatchNorm, shapes: Shapes) -> Buffers:
    channel: Spec = ((shapes.y[1],), FLOAT)
    by_running: dict[str, Spec] = {"inverse": channel, "shift": channel}
    if not shapes.training:
        return Buffers(forward=by_running)
    if op.frozen:
        return Buffers(forward=by_running, backward={"normal": (shapes.y, FLOAT), "inverse": channel})
    if op.sync == "rank":
        return norm_of_rank.buffers(shapes.y)
    check_values(shapes.y)
    return Buffers(
        saved={"mean": channel, "inverse": channel},
        forward={"normal": (shapes.y, FLOAT), "variance": channel, "part": channel},
        backward={"normal": (shapes.y, FLOAT), "part": (shapes.y, FLOAT), "factor": channel},
    )


def check_values(shape: Shape) -> None:
    """Raises ShapeError where training on (n, c, ...) has one value a channel."""
    if int(np.prod(shape)) == shape[1]:
        raise ShapeError("training needs more than one value a channel, the variance of one is 0: use a larger batch")


def forward(call: Call) -> Run:
    if "mean" not in call.saved:
        return _evaluate(call)
    return norm_of_rank.forward(call) if call.op.sync == "rank" else _train(call)


def _train(call: Call) -> Run:
    op, x, y = call.op, _rows(call.x[0]), _rows(call.y)
    normal, variance, part = _rows(call.scratch["normal"]), call.scratch["variance"], call.scratch["part"]
    mean, inverse = call.saved["mean"], call.saved["inverse"]
    weight, bias = call.w["weight"][:, None], call.w["bias"][:, None]
    running_mean, running_variance = call.statistics["mean"], call.statistics["variance"]
    number = y.dtype.type
    count = x.shape[0] * x.shape[2]
    each, keep, take = number(1.0 / count), number(1.0 - op.momentum), number(op.momentum)
    unbiased = number(op.momentum * count / (count - 1))
    epsilon = number(op.epsilon)

    def run() -> None:
        nonlocal mean, normal, running_mean, running_variance, variance, y
        np.sum(x, axis=(0, 2), out=mean)
        mean *= each
        np.subtract(x, mean[:, None], out=normal)
        np.multiply(normal, normal, out=y)  # y is scratch until it is written
        np.sum(y, axis=(0, 2), out=variance)
        variance *= each
        np.add(variance, epsilon, out=inverse)
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        normal *= inverse[:, None]
        np.multiply(normal, weight, out=y)
        y += bias
        running_mean *= keep
        np.multiply(mean, take, out=part)
        running_mean += part
        running_variance *= keep
        variance *= unbiased
        running_variance += variance

    return run


def _evaluate(call: Call) -> Run:
    x, y = _rows(call.x[0]), _rows(call.y)
    inverse, shift = call.scratch["inverse"], call.scratch["shift"]
    weight, bias = call.w["weight"], call.w["bias"]
    mean, variance = call.statistics["mean"], call.statistics["variance"]
    epsilon = y.dtype.type(call.op.epsilon)

    def run() -> None:  # y = x (weight / deviation) + (bias - mean weight / deviation)
        nonlocal y
        np.add(variance, epsilon, out=inverse)
        np.sqrt(inverse, out=inverse)
        np.divide(weight, inverse, out=inverse)
        np.multiply(mean, inverse, out=shift)
        np.subtract(bias, shift, out=shift)
        np.multiply(x, inverse[:, None], out=y)
        y += shift[:, None]

    return run


def backward(call: Call) -> Run:
    if call.op.frozen:
        return _frozen_backward(call)
    return norm_of_rank.backward(call) if call.op.sync == "rank" else _train_backward(call)


def _frozen_backward(call: Call) -> Run:
    x, dy, normal, inverse = _rows(call.x[0]), _rows(call.dy), _rows(call.scratch["normal"]), call.scratch["inverse"]
    mean, variance, epsilon = call.statistics["mean"], call.statistics["variance"], dy.dtype.type(call.op.epsilon)
    weight, dweight, dbias = call.w["weight"], call.dw["weight"], call.dw["bias"]
    dx = None if call.dx[0] is None else _rows(call.dx[0])

    def run() -> None:  # dx = weight / deviation dy
        nonlocal inverse, normal
        np.add(variance, epsilon, out=inverse)
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        np.subtract(x, mean[:, None], out=normal)
        normal *= inverse[:, None]
        np.sum(dy, axis=(0, 2), out=dbias)
        normal *= dy
        np.sum(normal, axis=(0, 2), out=dweight)
        if dx is not None:
            inverse *= weight
            np.multiply(dy, inverse[:, None], out=dx)

    return run


def _train_backward(call: Call) -> Run:
    dy, dx, part, factor = _rows(call.dy), call.dx[0], _rows(call.scratch["part"]), call.scratch["factor"]
    x, normal, mean, inverse = (
        _rows(call.x[0]),
        _rows(call.scratch["normal"]),
        call.saved["mean"],
        call.saved["inverse"],
    )
    weight, dweight, dbias = call.w["weight"], call.dw["weight"], call.dw["bias"]
    dx3 = None if dx is None else _rows(dx)
    each = dy.dtype.type(1.0 / (dy.shape[0] * dy.shape[2]))

    def run() -> None:  # dx = weight / deviation (dy - mean(dy) - normal mean(dy normal))
        nonlocal dx3, normal, part
        np.subtract(x, mean[:, None], out=normal)
        normal *= inverse[:, None]
        np.sum(dy, axis=(0, 2), out=dbias)
        np.multiply(dy, normal, out=part)
        np.sum(part, axis=(0, 2), out=dweight)
        if dx3 is None:
            return
        np.multiply(normal, dweight[:, None], out=part)
        part += dbias[:, None]
        part *= each
        np.subtract(dy, part, out=dx3)
        np.multiply(inverse, weight, out=factor)
        dx3 *= factor[:, None]

    return run


KERNELS: KernelTable = {
    BatchNorm: Kernel(forward, backward, buffers),
}
