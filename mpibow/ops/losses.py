"""Losses by PyTorch's names: one number a sample, the mean of its elements, so that a batch's mean is PyTorch's.

A mean over any subset of samples stays exact, whatever batch and learner they fall to. The mean of cross_entropy is
over labels that it does not ignore, and is exact by its counts (mpibow.ops.counted).
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from mpibow.errors import ShapeError
from mpibow.formulas import functions as f
from mpibow.graph import FLOAT, Array, Buffers, Kernel, Op, Run, Shape, Tensor, binds

from .cast import cast, floats
from .counted import counted_mean, label_count
from .cross_entropy import check_smoothing, soft_cross_entropy, softmax_cross_entropy
from .elementary import abs as absolute
from .permute import permute
from .pointwise import Element, Pointwise
from .reduce import mean, sum
from .reshape import axis_of, reshape

__all__ = [
    "BinaryCrossEntropy",
    "ClassTarget",
    "Huber",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "l1_loss",
    "mse_loss",
]


class Huber(Pointwise):
    """y = x^2 / 2 where |x| <= delta, else delta (|x| - delta / 2)."""

    delta: float
    kind = "huber"

    def infer(self, x: Shape) -> Shape:
        if not 0.0 < self.delta < inf:
            raise ShapeError(f"delta must be above 0, got {self.delta}")
        return x

    @staticmethod
    def value(x: Element, *, delta: float) -> Element:
        size = f.abs(x)
        inside = f.minimum(size, delta)
        return inside * (size - 0.5 * inside)

    @staticmethod
    def gradient(x: Element, dy: Element, *, delta: float) -> Element:
        return dy * f.maximum(f.minimum(x, delta), -delta)


class BinaryCrossEntropy(Pointwise):
    """y = -t log s(x) - (1 - t) log(1 - s(x)), s the sigmoid, of logits x and targets t."""

    kind = "binary_cross_entropy"
    differentiable = (0, 1)

    def infer(self, x: Shape, target: Shape) -> Shape:
        if x != target:
            raise ShapeError("logits and targets must have one shape")
        return x

    @staticmethod
    def value(x0: Element, x1: Element) -> Element:
        return f.maximum(x0, 0) - x0 * x1 + f.log1p(f.exp(-f.abs(x0)))

    @staticmethod
    def gradient(x0: Element, x1: Element, dy: Element) -> Element:
        return dy * (1 / (1 + f.exp(-x0)) - x1), -x0 * dy


class ClassTarget(Op):
    """label (n,) -> y[n, c] = (1 - e) weight[label] where c is the label, + e / classes weight[c]; 0 where `ignore`.

    The target of cross_entropy with class weights and smoothing e, as in PyTorch. A label that is no class adds nothing
    here, and makes the count of its sample NaN (LabelCount).
    """

    weight: tuple[float, ...]
    ignore: int
    smoothing: float = 0.0
    kind = "class_target"
    integers = (0,)
    differentiable = None

    def infer(self, label: Shape) -> Shape:
        check_smoothing(self.smoothing)
        if len(label) != 1:
            raise ShapeError("labels must be (batch,)")
        return (*label, len(self.weight))


def _alike(loss: str, x: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    """Both as floats. Raises ShapeError where they would be broadcast: (n,) beside (n, 1) gives n x n differences."""
    if x.shape != target.shape:
        raise ShapeError(
            f"{loss} of {x.name} {x.shape}, {target.name} {target.shape}: must have one shape; mb.reshape one of them"
        )
    return floats(x, target)


def _by_sample(x: Tensor, name: str | None) -> Tensor:
    """(n, ...) -> (n,): the mean of each sample."""
    return mean(x, name=name) if x.ndim > 1 else x


def mse_loss(x: Tensor, target: Tensor, *, name: str | None = None) -> Tensor:
    """x and target (n, ...) -> (n,): the mean of (x - target)^2 over each sample."""
    x, target = _alike("mse_loss", x, target)
    return _by_sample((x - target) ** 2, name)


def l1_loss(x: Tensor, target: Tensor, *, name: str | None = None) -> Tensor:
    """x and target (n, ...) -> (n,): the mean of |x - target| over each sample."""
    x, target = _alike("l1_loss", x, target)
    return _by_sample(absolute(x - target), name)


def huber_loss(x: Tensor, target: Tensor, delta: float = 1.0, *, name: str | None = None) -> Tensor:
    """x, target (n, ...) -> (n,): mean of d^2 / 2 if |d| <= `delta`, else delta (|d| - delta / 2), d = x - target."""
    x, target = _alike("huber_loss", x, target)
    return _by_sample(Huber(delta)(x - target), name)


def binary_cross_entropy_with_logits(x: Tensor, target: Tensor, *, name: str | None = None) -> Tensor:
    """Logits x and targets in [0, 1], both (n, ...) -> (n,): the mean over each sample."""
    x, target = _alike("binary_cross_entropy_with_logits", x, target)
    return _by_sample(BinaryCrossEntropy()(x, target), name)


def cross_entropy(
    x: Tensor,
    label: Tensor,
    *,
    axis: int = 1,
    weight: Sequence[float] | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Logits x (n, classes, ...), classes along `axis`, labels (n, ...) -> losses (n,), whose mean is PyTorch's.

    The mean is over labels that are not `ignore_index`, or over their classes' weights where `weight` has one for each
    class: see counted_mean. Labels are integers, or probabilities of x's shape: then all count, and `weight` is None.
    """
    rank = x.ndim
    at = axis_of(x, axis)
    rest = tuple(extent for i, extent in enumerate(x.shape) if i != at)
    label = label if label.dtype in (FLOAT, "int32", "int64") else cast(label, "int32")
    about = f"cross_entropy of {x.name} {x.shape}, {label.name} {label.shape}"
    soft = label.dtype == FLOAT
    if not 0 < at < rank or label.shape != (x.shape if soft else rest):
        raise ShapeError(
            f"{about}: labels must have the logits' shape but for axis {axis}, the classes, which is not the batch"
        )
    classes = x.shape[at]
    if weight is not None and (soft or len(weight) != classes or not all(0 <= each < inf for each in weight)):
        raise ShapeError(f"{about}: weight must be {classes} numbers, one a class, for integer labels, got {weight}")
    flat = rows_of(x, at)
    if soft:
        losses = soft_cross_entropy(flat, rows_of(label, at), smoothing=label_smoothing)
        return _by_sample(reshape(losses, rest), name)
    labels = label if rank == 2 else reshape(label, (-1,))
    weights = None if weight is None else tuple(map(float, weight))
    if weights and label_smoothing:
        losses = soft_cross_entropy(flat, ClassTarget(weights, ignore_index, label_smoothing)(labels))
    else:
        losses = softmax_cross_entropy(flat, labels, smoothing=label_smoothing, ignore=ignore_index)
        losses = losses * label_count(labels, ignore_index, weights) if weights else losses
    sums = losses if rank == 2 else sum(reshape(losses, rest))
    return counted_mean(sums, label_count(label, ignore_index, weights), name=name)


def rows_of(x: Tensor, axis: int) -> Tensor:
    """(rows, classes), the classes being those of `axis`."""
    rank = x.ndim
    last = x if axis == rank - 1 else permute(x, *(i for i in range(rank) if i != axis), axis)
    return last if rank == 2 else reshape(last, (-1, x.shape[axis]))


# The reference kernel of ClassTarget.


@binds
def target_forward(
    label: Array, y: Array, is_class: Array, counted: Array, weight: tuple[float, ...], ignore: int, smoothing: float
) -> Run:
    classes = np.arange(len(weight))
    weights = np.array(weight, y.dtype)
    labels = label.reshape(-1, 1)
    at_label = weights * (1 - smoothing)
    spread = weights * (smoothing / len(weight))

    def run() -> None:
        nonlocal y
        np.equal(labels, classes, out=is_class)
        np.multiply(is_class, at_label, out=y)
        y += spread
        np.not_equal(labels, ignore, out=counted)
        y *= counted

    return run


KERNELS = {
    ClassTarget: Kernel(
        target_forward,
        buffers=lambda op, shapes: Buffers(
            forward={"is_class": (shapes.y, "bool"), "counted": ((shapes.y[0], 1), "bool")}
        ),
    )
}
