"""Softmax cross-entropy and accuracy, one number a sample: a mean over any subset stays exact.

A training plan differentiates the mean over the *batch*. Where labels are ignored this differs from PyTorch, whose
mean is over the samples that are not: multiply by n / (number not ignored) to compare. Ours keeps every sample's
weight the same whatever batch and learner it falls to, and a batch of ignored samples has gradient 0, not NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor


def _per_sample(logits: Shape, label: Shape) -> Shape:
    if len(logits) != 2 or label != (logits[0],):
        raise ShapeError("logits must be (batch, classes) and labels (batch,)")
    return label


def _check_smoothing(smoothing: float) -> None:
    if not 0.0 <= smoothing < 1.0:
        raise ShapeError(f"smoothing must be in [0, 1), got {smoothing}")


@dataclass(frozen=True)
class Softmax(Op):
    """y = exp(x) / (the sum of exp(x) along `axis`)."""

    axis: int
    kind: ClassVar[str] = "softmax"
    reads: ClassVar[frozenset[str]] = frozenset("y")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if not 0 <= self.axis < len(x):
            raise ShapeError(f"axis {self.axis} must be one of the input's {len(x)} axes")
        return x


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Op):
    """y[n] = log(sum over c of exp(x[n, c])) - x[n, label[n]]; 0, without gradient, where label[n] is `ignore`.

    `smoothing` e is of the target: 1 - e of it stays at the label, e is spread evenly over all classes
    (Szegedy et al., arXiv:1512.00567, section 7).
    """

    smoothing: float = 0.0
    ignore: int | None = None
    kind: ClassVar[str] = "softmax_cross_entropy"

    def infer(self, *shapes: Shape) -> Shape:
        _check_smoothing(self.smoothing)
        return _per_sample(*shapes)


@dataclass(frozen=True)
class SoftCrossEntropy(Op):
    """y[n] = - sum over c of t[n, c] log softmax(x)[n, c], t = (1 - smoothing) target + smoothing / classes."""

    smoothing: float = 0.0
    kind: ClassVar[str] = "soft_cross_entropy"

    def infer(self, *shapes: Shape) -> Shape:
        _check_smoothing(self.smoothing)
        logits, target = shapes
        if len(logits) != 2 or target != logits:
            raise ShapeError("logits and targets must both be (batch, classes)")
        return (logits[0],)


@dataclass(frozen=True)
class Accuracy(Op):
    """y[n] = 1 where the label's logit is among the k largest (the first of equals first), else 0. No gradient."""

    k: int = 1
    kind: ClassVar[str] = "accuracy"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        label = _per_sample(*shapes)
        if not 1 <= self.k <= shapes[0][1]:
            raise ShapeError(f"k must be between 1 and the number of classes, got {self.k}")
        return label


def softmax(x: Tensor, axis: int = 1, *, name: str | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`: classes or channels unless given; below 0 it counts from the last."""
    return x.graph.add(Softmax(axis + len(x.shape) * (axis < 0)), x, name=name)


def softmax_cross_entropy(
    logits: Tensor, label: Tensor, *, smoothing: float = 0.0, ignore: int | None = None, name: str | None = None
) -> Tensor:
    """logits (n, classes), label (n,) int32 -> losses (n,); 0 where the label is `ignore` (any integer)."""
    return logits.graph.add(SoftmaxCrossEntropy(smoothing, ignore), logits, label, name=name)


def soft_cross_entropy(logits: Tensor, target: Tensor, *, smoothing: float = 0.0, name: str | None = None) -> Tensor:
    """logits (n, classes), target (n, classes) probabilities, as of mixup -> losses (n,). None flows to the target."""
    return logits.graph.add(SoftCrossEntropy(smoothing), logits, target, name=name)


def accuracy(logits: Tensor, label: Tensor, k: int = 1, *, name: str | None = None) -> Tensor:
    """logits (n, classes), label (n,) int32 -> 1.0 or 0.0 (n,): whether the label is among the k likeliest classes."""
    return logits.graph.add(Accuracy(k), logits, label, name=name)
