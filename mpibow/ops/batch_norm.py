"""Batch normalisation (Ioffe and Szegedy, arXiv:1502.03167)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
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
        return _of_channels(shapes[0], weight=self.initial, bias=self.initial_bias)

    def statistics(self, *shapes: Shape) -> Mapping[str, Weight]:
        return _of_channels(shapes[0], not self.frozen, mean=ZERO, variance=ONE)

    def untrained(self) -> BatchNorm:
        return replace(self, frozen=True, sync="learner")


def _of_channels(x: Shape, trained: bool = True, **initial: Initialiser) -> dict[str, Weight]:
    """Arrays of one number a channel, which do not decay."""
    return {key: Weight((x[1],), each, x[1], x[1], decay=False, trained=trained) for key, each in initial.items()}


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
    channel = ((shapes.y[1],), FLOAT)
    if not shapes.training or op.frozen:
        by_running = {"inverse": channel, "shift": channel}
        return Buffers(forward=by_running, backward={"normal": (shapes.y, FLOAT), "inverse": channel})
    if op.sync == "learner":
        check_values(shapes.y)
    return norm_of_rank.buffers(shapes.y)


def check_values(shape: Shape) -> None:
    """Raises ShapeError where training on (n, c, ...) has one value a channel."""
    if int(np.prod(shape)) == shape[1]:
        raise ShapeError("training needs more than one value a channel, the variance of one is 0: use a larger batch")


def forward(call: Call) -> Run:
    if "mean" in call.saved:
        return norm_of_rank.forward(call)
    x, y = _rows(call.x0), _rows(call.y)
    inverse, shift, epsilon = call.scratch["inverse"], call.scratch["shift"], call.op.epsilon
    weight, bias = call.w["weight"], call.w["bias"]
    mean, variance = call.statistics["mean"], call.statistics["variance"]

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
    if call.op.sync == "rank":
        return norm_of_rank.backward(call)
    x, dy, normal, frozen = _rows(call.x0), _rows(call.dy), _rows(call.scratch["normal"]), call.op.frozen
    moments, scratch = call.statistics if frozen else call.saved, call.scratch
    mean, inverse = moments["mean"], scratch["inverse"] if frozen else call.saved["inverse"]
    part, factor = (normal, inverse) if frozen else (_rows(scratch["part"]), scratch["sums"][0])
    weight, dweight, dbias = call.w["weight"], call.dw["weight"], call.dw["bias"]
    dx = None if call.dx[0] is None else _rows(call.dx[0])
    each, epsilon = 1.0 / (dy.shape[0] * dy.shape[2]), call.op.epsilon

    def run() -> None:
        nonlocal normal, part, dx
        if frozen:
            np.add(moments["variance"], epsilon, out=inverse)
            np.sqrt(inverse, out=inverse)
            np.reciprocal(inverse, out=inverse)
        np.subtract(x, mean[:, None], out=normal)
        normal *= inverse[:, None]
        np.sum(dy, axis=(0, 2), out=dbias)
        np.multiply(dy, normal, out=part)
        np.sum(part, axis=(0, 2), out=dweight)
        if dx is None:
            return
        source = dy
        if not frozen:  # dx = weight / deviation (dy - mean(dy) - normal mean(dy normal)), the means 0 of a frozen norm
            np.multiply(normal, dweight[:, None], out=part)
            part += dbias[:, None]
            part *= each
            source = np.subtract(dy, part, out=dx)
        np.multiply(inverse, weight, out=factor)
        np.multiply(source, factor[:, None], out=dx)

    return run


KERNELS = {
    BatchNorm: Kernel(forward, backward, buffers),
}
