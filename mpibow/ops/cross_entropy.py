"""Softmax cross-entropy and accuracy, one number a sample: a mean over any subset stays exact.

A training plan differentiates the mean over the *batch*, in which every sample keeps the same weight whatever batch and
learner it falls to, ignored samples too. PyTorch's mean is over samples that count: see mpibow.cross_entropy.
"""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import EVERY, FLOAT, Array, Buffers, Kernel, Op, Run, Shape, Shapes, Tensor, binds, runs

from .cast import cast

__all__ = [
    "Accuracy",
    "SoftCrossEntropy",
    "SoftmaxCrossEntropy",
    "accuracy",
    "soft_cross_entropy",
    "softmax_cross_entropy",
]


def per_sample(logits: Shape, label: Shape) -> Shape:
    if len(logits) != 2 or label != (logits[0],):
        raise ShapeError("logits must be (batch, classes) and labels (batch,)")
    return label


def check_smoothing(smoothing: float) -> None:
    """Raises ShapeError where it is no share."""
    if not 0.0 <= smoothing < 1.0:
        raise ShapeError(f"smoothing must be in [0, 1), got {smoothing}")


class SoftmaxCrossEntropy(Op):
    """y[n] = log(sum over c of exp(x[n, c])) - x[n, label[n]]; 0, without gradient, where label[n] is `ignore`.

    Any other label outside [0, classes) gives NaN, loss and gradient.
    `smoothing` e is of the target: 1 - e of it stays at the label, e is spread evenly over all classes
    (Szegedy et al., arXiv:1512.00567, section 7).
    """

    smoothing: float = 0.0
    ignore: int | None = None
    kind = "softmax_cross_entropy"
    integers = (1,)

    def infer(self, logits: Shape, label: Shape) -> Shape:
        check_smoothing(self.smoothing)
        return per_sample(logits, label)


class SoftCrossEntropy(Op):
    """y[n] = - sum over c of t[n, c] log softmax(x)[n, c], t = (1 - smoothing) target + smoothing / classes."""

    smoothing: float = 0.0
    kind = "soft_cross_entropy"

    def infer(self, logits: Shape, target: Shape) -> Shape:
        check_smoothing(self.smoothing)
        if len(logits) != 2 or target != logits:
            raise ShapeError("logits and targets must both be (batch, classes)")
        return (logits[0],)


def softmax_cross_entropy(
    logits: Tensor, label: Tensor, *, smoothing: float = 0.0, ignore: int | None = None, name: str | None = None
) -> Tensor:
    """logits (n, classes), label (n,) of integers -> losses (n,); 0 where the label is `ignore` (any integer)."""
    if label.dtype == FLOAT:
        raise ShapeError(f"cross-entropy of {logits.name}: labels must be integers, {label.name} is of floats")
    label = label if label.dtype in ("int32", "int64") else cast(label, "int32")
    return SoftmaxCrossEntropy(smoothing, ignore)(logits, label, name=name)


def soft_cross_entropy(logits: Tensor, target: Tensor, *, smoothing: float = 0.0, name: str | None = None) -> Tensor:
    """logits (n, classes), target (n, classes) probabilities -> losses (n,). The target gets no gradient."""
    return SoftCrossEntropy(smoothing)(logits, target, name=name)


class Accuracy(Op):
    """y[n] = 1 where the label's logit is among the k largest (the first of equals first), else 0. No gradient."""

    k: int = 1
    kind = "accuracy"
    integers = (1,)
    differentiable = None
    flat = EVERY

    def infer(self, logits: Shape, label: Shape) -> Shape:
        per_sample(logits, label)
        if not 1 <= self.k <= logits[1]:
            raise ShapeError(f"k must be between 1 and the number of classes, got {self.k}")
        return label


def accuracy(logits: Tensor, label: Tensor, k: int = 1, *, name: str | None = None) -> Tensor:
    """logits (n, classes), label (n,) int32 -> 1.0 or 0.0 (n,): whether the label is among the k likeliest classes."""
    return Accuracy(k)(logits, label, name=name)


# The reference kernels.


def cross_entropy_buffers(op: SoftmaxCrossEntropy, shapes: Shapes) -> Buffers:
    n, classes = shapes.x[0]
    kept = {"probability": ((n, classes), FLOAT), "index": ((n,), "int64")}
    if op.ignore is not None:
        kept["ignored"] = ((n,), "bool")
    vector = ((n,), FLOAT)
    return Buffers(
        saved=kept,
        forward={"column": ((n, 1), FLOAT), "picked": vector},
        backward={"picked": vector, **({"share": vector} if op.smoothing else {})},
    )


@binds
def cross_entropy_forward(
    logits: Array,
    label: Array,
    y: Array,
    probability: Array,
    index: Array,
    column: Array,
    picked: Array,
    smoothing: float,
    ignore: int,
    ignored: Array | None = None,
) -> Run:
    classes = logits.shape[1]
    flat = probability.reshape(-1)
    starts = np.arange(len(label)) * classes
    outside = np.empty(len(label), bool)
    rest = 1.0 - smoothing
    spread = smoothing / classes

    def run() -> None:
        nonlocal picked, probability, y, index
        np.clip(label, 0, classes - 1, out=index)  # a wrong label must not read or write another row
        np.not_equal(index, label, out=outside)
        index += starts
        np.max(logits, axis=1, keepdims=True, out=column)
        np.copyto(column[:, 0], np.nan, where=outside)  # and with it the row's probabilities
        np.subtract(logits, column, out=probability)
        flat.take(index, out=picked, mode="clip")  # the label's logit, before exp
        if smoothing:  # (1 - e) of it and e of the mean of all
            picked *= rest
            np.sum(probability, axis=1, out=y)
            y *= spread
            picked += y
        np.exp(probability, out=probability)
        np.sum(probability, axis=1, keepdims=True, out=column)
        probability /= column
        np.log(column[:, 0], out=y)
        y -= picked
        if ignored is not None:
            np.equal(label, ignore, out=ignored)
            np.copyto(y, 0, where=ignored)  # `ignore` need not be a class

    return run


@binds
def cross_entropy_backward(
    dy: Array,
    dx: Array,
    probability: Array,
    index: Array,
    picked: Array,
    smoothing: float,
    ignored: Array | None = None,
    share: Array | None = None,
) -> Run:
    flat = dx.reshape(-1)
    dy2 = dy.reshape(-1, 1)
    shares = dy if share is None else share
    rest = 1.0 - smoothing
    spread = smoothing / dx.shape[1]
    ignored2 = None if ignored is None else ignored.reshape(-1, 1)

    def run() -> None:  # dy (probability - target)
        nonlocal dx, picked
        if smoothing:
            np.subtract(probability, spread, out=dx)
            dx *= dy2
            np.multiply(dy, rest, out=shares)
        else:
            np.multiply(probability, dy2, out=dx)
        flat.take(index, out=picked, mode="clip")
        picked -= shares
        flat[index] = picked
        if ignored2 is not None:
            np.copyto(dx, 0, where=ignored2)

    return run


def soft_buffers(op: SoftCrossEntropy, shapes: Shapes) -> Buffers:
    slope = {"slope": (shapes.x[0], FLOAT)}
    column = ((shapes.y[0], 1), FLOAT)
    return Buffers(saved=slope, forward={"column": column, "mass": column, "smooth": (shapes.x[0], FLOAT)})


@runs
def soft_forward(
    logits: Array, target: Array, y: Array, slope: Array, column: Array, mass: Array, smooth: Array, smoothing: float
) -> None:
    """With t the target, smoothed: y = sum(t) log(sum(exp(x))) - t x, slope = sum(t) softmax(x) - t."""
    np.multiply(target, 1.0 - smoothing, out=smooth)
    smooth += smoothing / logits.shape[1]
    np.max(logits, axis=1, keepdims=True, out=column)
    np.subtract(logits, column, out=slope)
    np.vecdot(smooth, slope, out=y)
    np.exp(slope, out=slope)
    np.sum(slope, axis=1, keepdims=True, out=column)
    slope /= column
    np.sum(smooth, axis=1, keepdims=True, out=mass)
    slope *= mass
    slope -= smooth
    np.log(column, out=column)
    column *= mass
    np.subtract(column[:, 0], y, out=y)


def accuracy_buffers(op: Accuracy, shapes: Shapes) -> Buffers:
    n, classes = shapes.x[0]
    rank = {"rank": ((n,), "int64")}
    if op.k == 1:
        return Buffers(forward=rank)
    mask = ((n, classes), "bool")
    return Buffers(forward={**rank, "ahead": mask, "level": mask, "valid": ((n,), "bool"), "picked": ((n, 1), FLOAT)})


@runs
def _is_the_best(logits: Array, label: Array, y: Array, rank: Array) -> None:
    np.argmax(logits, axis=1, out=rank)
    np.equal(rank, label, out=y, casting="unsafe")


@binds
def _among_the_best(
    logits: Array, label: Array, y: Array, rank: Array, picked: Array, valid: Array, ahead: Array, level: Array, k: int
) -> Run:
    classes = np.arange(logits.shape[1])
    starts = np.arange(len(label)) * len(classes)
    label2 = label.reshape(-1, 1)
    flat = logits.reshape(-1)
    picked1 = picked[:, 0]
    first = level[:, 0]
    last = len(classes) - 1

    def run() -> None:  # a label's rank is the number of logits ahead of its own: larger, or as large and earlier
        np.add(starts, label, out=rank)
        flat.take(rank, out=picked1, mode="clip")
        np.equal(logits, picked, out=level)
        np.less(classes, label2, out=ahead)
        np.logical_and(level, ahead, out=ahead)
        np.less_equal(logits, picked, out=level)
        np.logical_not(level, out=level)  # not <= rather than >: a label whose logit is NaN is a miss
        np.logical_or(level, ahead, out=ahead)
        np.sum(ahead, axis=1, out=rank)
        np.greater_equal(label, 0, out=valid)
        np.less_equal(label, last, out=first)  # a label that is no class, as an ignored one, is a miss
        np.logical_and(valid, first, out=valid)
        np.less(rank, k, out=first)
        np.logical_and(valid, first, out=y, casting="unsafe")

    return run


KERNELS = {
    Accuracy: Kernel(
        lambda call: (_is_the_best if call.op.k == 1 else _among_the_best)(call), buffers=accuracy_buffers
    ),
    SoftCrossEntropy: Kernel(
        soft_forward, runs(lambda dy, dx, slope: np.multiply(slope, dy.reshape(-1, 1), out=dx)), soft_buffers
    ),
    SoftmaxCrossEntropy: Kernel(cross_entropy_forward, cross_entropy_backward, cross_entropy_buffers),
}
