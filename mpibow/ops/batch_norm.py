"""Batch normalisation (Ioffe and Szegedy, arXiv:1502.03167), by the statistics of one learner or of all of a rank.

Learners of a rank meet once in forward and once in backward. Each has its own weights; the gradient is that of the sum
of all their losses. A norm whose `sync` is "learner" has the same forward in training, alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import (
    ALONE,
    FLOAT,
    Array,
    Buffers,
    Call,
    Initialiser,
    Kernel,
    Op,
    Run,
    Shape,
    Shapes,
    Tensor,
    Weight,
    Weights,
    binds,
)

from .initialisers import ONE, ZERO

__all__ = ["BatchNorm", "batch_norm"]

Sync = Literal["learner", "rank"]


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
    reads = "xw"

    def infer(self, x: Shape) -> Shape:
        if len(x) < 2:
            raise ShapeError("input must be (batch, channels, ...)")
        return x

    def weights(self, x: Shape) -> Weights:
        return _of_channels(x, weight=self.initial, bias=self.initial_bias)

    def statistics(self, x: Shape) -> Weights:
        return _of_channels(x, not self.frozen, mean=ZERO, variance=ONE)

    def untrained(self) -> "BatchNorm":
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
    return BatchNorm(epsilon, momentum, initial, initial_bias, frozen, sync)(x, name=name)


# The reference kernels: a channel at a time being one row of (n, c, positions).


def _rows(array: Array) -> Array:
    """(n, c, ...) as (n, c, positions)."""
    return array.reshape(*array.shape[:2], -1)


@binds
def train_forward(
    call: Call,
    op: BatchNorm,
    x: Array,
    y: Array,
    normal: Array,
    mean: Array,
    inverse: Array,
    variance: Array,
    part: Array,
    weight: Array,
    bias: Array,
) -> Run:
    x = _rows(x)
    y = _rows(y)
    normal = _rows(normal)
    weight = weight[:, None]
    bias = bias[:, None]
    running_mean = call.statistics["mean"]
    running_variance = call.statistics["variance"]
    own = np.zeros((2, x.shape[1]), y.dtype)
    count = x.shape[0] * x.shape[2]
    momentum = op.momentum
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
        np.mean(x, axis=(0, 2), out=own[0])
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


def buffers(op: BatchNorm, shapes: Shapes) -> Buffers:
    whole = (shapes.y, FLOAT)
    channel = ((shapes.y[1],), FLOAT)
    if not shapes.training or op.frozen:
        return Buffers(forward={"inverse": channel, "shift": channel}, backward={"normal": whole, "inverse": channel})
    if op.sync == "learner":
        check_values(shapes.y)
    return Buffers(
        saved={"mean": channel, "inverse": channel},
        forward={"normal": whole, "variance": channel, "part": channel},
        backward={"normal": whole, "part": whole, "sums": ((2, shapes.y[1]), FLOAT)},
    )


def check_values(shape: Shape) -> None:
    """Raises ShapeError where training on (n, c, ...) has one value a channel."""
    if np.prod(shape) == shape[1]:
        raise ShapeError("training needs more than one value a channel, the variance of one is 0: use a larger batch")


@binds
def frozen_forward(
    x: Array,
    y: Array,
    mean: Array,
    variance: Array,
    weight: Array,
    bias: Array,
    inverse: Array,
    shift: Array,
    epsilon: float,
) -> Run:
    x = _rows(x)
    y = _rows(y)

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


def forward(call: Call) -> Run:
    return (train_forward if "mean" in call.saved else frozen_forward)(call)


def backward(call: Call) -> Run:
    x = _rows(call.x0)
    dy = _rows(call.dy)
    normal = _rows(call.scratch["normal"])
    frozen = call.op.frozen
    moments = call.statistics if frozen else call.saved
    scratch = call.scratch
    mean = moments["mean"]
    inverse = scratch["inverse"] if frozen else call.saved["inverse"]
    part = normal if frozen else _rows(scratch["part"])
    weight = call.w["weight"]
    dweight = call.dw["weight"]
    dbias = call.dw["bias"]
    dx = None if call.dx[0] is None else _rows(call.dx[0])
    count = dy.shape[0] * dy.shape[2]
    epsilon = call.op.epsilon
    own = np.zeros((2, x.shape[1]), dy.dtype)
    meet = (call.peers if call.op.sync == "rank" else ALONE).show(f"{call.name} backward", own)

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
        # With dz = weight dy: dx = (dz - mean(dz) - normal mean(dz normal)) / deviation, of all; frozen, means are 0.
        np.multiply(dy, weight[:, None], out=dx)
        if not frozen:
            np.multiply(weight, dbias, out=own[0])
            np.multiply(weight, dweight, out=own[1])
            learners = meet()
            sums = scratch["sums"]
            sums.fill(0)
            for products in learners:
                sums += products
            sums *= 1 / (len(learners) * count)
            normal *= sums[1][:, None]
            normal += sums[0][:, None]
            dx -= normal
        dx *= inverse[:, None]

    return run


KERNELS = {BatchNorm: Kernel(forward, backward, buffers)}
