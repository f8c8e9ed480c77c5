"""Softmax cross-entropy and accuracy, one number a sample: a mean over any subset stays exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor


def _per_sample(logits: Shape, label: Shape) -> Shape:
    if len(logits) != 2 or label != (logits[0],):
        raise ShapeError("logits must be (batch, classes) and labels (batch,)")
    return label


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Op):
    """y[n] = log(sum over c of exp(x[n, c])) - x[n, label[n]]."""

    kind: ClassVar[str] = "softmax_cross_entropy"

    def infer(self, *shapes: Shape) -> Shape:
        return _per_sample(*shapes)


@dataclass(frozen=True)
class Accuracy(Op):
    """y[n] = 1 where the largest logit (the first of equals) is the label's, else 0. It has no gradient."""

    kind: ClassVar[str] = "accuracy"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        return _per_sample(*shapes)


def softmax_cross_entropy(logits: Tensor, label: Tensor, *, name: str | None = None) -> Tensor:
    """logits (n, classes), label (n,) int32 -> losses (n,)."""
    return logits.graph.add(SoftmaxCrossEntropy(), logits, label, name=name)


def accuracy(logits: Tensor, label: Tensor, *, name: str | None = None) -> Tensor:
    """logits (n, classes), label (n,) int32 -> 1.0 or 0.0 (n,)."""
    return logits.graph.add(Accuracy(), logits, label, name=name)
