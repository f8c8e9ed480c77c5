"""Accuracy: one number a sample, so a mean over any subset stays exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import EVERY, FLOAT, Op, Shape, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
from mpibow.ops.loss import per_sample

__all__ = ["Accuracy", "accuracy"]


@dataclass(frozen=True)
class Accuracy(Op):
    """y[n] = 1 where the label's logit is among the k largest (the first of equals first), else 0. No gradient."""

    k: int = 1
    kind = "accuracy"
    integers = (1,)
    differentiable = None
    flat = EVERY

    def infer(self, *shapes: Shape) -> Shape:
        label = per_sample(*shapes)
        if not 1 <= self.k <= shapes[0][1]:
            raise ShapeError(f"k must be between 1 and the number of classes, got {self.k}")
        return label


def accuracy(logits: Tensor, label: Tensor, k: int = 1, *, name: str | None = None) -> Tensor:
    """logits (n, classes), label (n,) int32 -> 1.0 or 0.0 (n,): whether the label is among the k likeliest classes."""
    return logits.graph.add(Accuracy(k), logits, label, name=name)


# The reference kernels.


def accuracy_buffers(op: Accuracy, shapes: Shapes) -> Buffers:
    n, classes = shapes.x[0]
    rank = {"rank": ((n,), "int64")}
    if op.k == 1:
        return Buffers(forward=rank)
    masks = {"ahead": ((n, classes), "bool"), "level": ((n, classes), "bool"), "valid": ((n,), "bool")}
    return Buffers(forward={**rank, **masks, "picked": ((n, 1), FLOAT)})


def accuracy_forward(call: Call) -> Run:
    (logits, label), y, best = call.x, call.y, call.scratch["rank"]
    if call.op.k > 1:
        return _among_the_best(call)

    def run() -> None:
        np.argmax(logits, axis=1, out=best)
        np.equal(best, label, out=y, casting="unsafe")

    return run


def _among_the_best(call: Call) -> Run:
    (logits, label), y, k = call.x, call.y, call.op.k
    rank, picked, valid = call.scratch["rank"], call.scratch["picked"], call.scratch["valid"]
    ahead, level = call.scratch["ahead"], call.scratch["level"]
    classes = np.arange(logits.shape[1])
    starts, label2 = np.arange(len(label)) * len(classes), label.reshape(-1, 1)
    flat, picked1, first, last = logits.reshape(-1), picked[:, 0], level[:, 0], len(classes) - 1

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
    Accuracy: Kernel(accuracy_forward, None, accuracy_buffers),
}
