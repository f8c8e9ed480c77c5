"""Mixup (Zhang et al., arXiv:1710.09412): each sample of a batch is mixed with the next one. For training graphs only.

A batch is a random draw already, so the next sample is as good a partner as one drawn again. A sample keeps the larger
share of the two, b or 1 - b: over all samples the mixtures are the paper's, each sample dominates one mixture an epoch,
and a training accuracy against its own label means something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor


@dataclass(frozen=True)
class MixShares(Op):
    """y[n] = what sample n keeps of itself: max(b, 1 - b), b drawn of Beta(alpha, alpha).

    The input is the counter (batch, 4). y[n] is entry w[0] >> 20 of the 4,096 of `kernels.beta.larger_shares(alpha)`,
    w the sample's Philox block, counter (0, sample low, sample high, epoch), key (seed, the node's stream).
    """

    alpha: float
    kind: ClassVar[str] = "mix_shares"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        (counter,) = shapes
        if len(counter) != 2 or counter[1] != 4:
            raise ShapeError("the counter must be (batch, 4)")
        if self.alpha <= 0:
            raise ShapeError(f"alpha must be above 0, got {self.alpha}")
        return counter[:1]


@dataclass(frozen=True)
class Mix(Op):
    """y[n] = x[m] + share[n] (x[n] - x[m]) with m = n + 1, 0 for the last: inputs x (batch, ...) and share (batch,)."""

    kind: ClassVar[str] = "mix"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        x, share = shapes
        if share != x[:1]:
            raise ShapeError("shares must be (batch,)")
        return x


@dataclass(frozen=True)
class OneHot(Op):
    """y[n, c] = 1 where label[n] is c, else 0: a row of zeros for a label that is no class."""

    classes: int
    kind: ClassVar[str] = "one_hot"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        (label,) = shapes
        if len(label) != 1:
            raise ShapeError("labels must be (batch,)")
        return (*label, self.classes)


def mix_shares(counter: Tensor, alpha: float, *, name: str | None = None) -> Tensor:
    """counter (n, 4) -> shares (n,) in [1/2, 1]."""
    return counter.graph.add(MixShares(alpha), counter, name=name)


def mix(x: Tensor, share: Tensor, *, name: str | None = None) -> Tensor:
    """x (n, ...), share (n,) -> each row mixed with the next."""
    return x.graph.add(Mix(), x, share, name=name)


def one_hot(label: Tensor, classes: int, *, name: str | None = None) -> Tensor:
    """label (n,) integers -> (n, classes)."""
    return label.graph.add(OneHot(classes), label, name=name)
