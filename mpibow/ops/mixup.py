"""Mixup (Zhang et al., arXiv:1710.09412): each sample of a batch is mixed with the next one.

A batch is a random draw already, so the next sample is as good a partner as one drawn again. A sample keeps the larger
share of the two, b or 1 - b: over all samples the mixtures are the paper's, each sample dominates one mixture an epoch,
and a training accuracy against its own label means something. The shares come from a table, so that every kernel set
draws the same numbers.
"""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import Array, Buffers, Call, Kernel, Op, Run, Shape, Tensor, binds

from .dropout import check_counter
from .philox import draw, draw_specs

__all__ = ["Mix", "MixShares", "OneHot", "mix", "mix_shares", "one_hot"]


class MixShares(Op):
    """y[n] = the share of sample n in its mixture: max(b, 1 - b), b drawn from Beta(alpha, alpha).

    The input is the counter (batch, 4). y[n] is entry w[0] >> 20 of the 4,096 of `larger_shares(alpha)`,
    w the sample's Philox block, counter (0, sample low, sample high, epoch), key (seed, the node's stream).
    """

    alpha: float
    kind = "mix_shares"
    integers = (0,)
    differentiable = None

    def infer(self, counter: Shape) -> Shape:
        check_counter(counter, counter)
        if self.alpha <= 0:
            raise ShapeError(f"alpha must be above 0, got {self.alpha}")
        return counter[:1]


class Mix(Op):
    """y[n] = x[m] + share[n] (x[n] - x[m]) with m = n + 1, 0 for the last: inputs x (batch, ...) and share (batch,)."""

    kind = "mix"
    differentiable = None

    def infer(self, x: Shape, share: Shape) -> Shape:
        if share != x[:1]:
            raise ShapeError("shares must be (batch,)")
        return x


class OneHot(Op):
    """y[n, c] = 1 where label[n] is c, else 0: a row of zeros for a label that is no class."""

    classes: int
    kind = "one_hot"
    integers = (0,)
    differentiable = None

    def infer(self, label: Shape) -> Shape:
        if len(label) != 1:
            raise ShapeError("labels must be (batch,)")
        return (*label, self.classes)


def mix_shares(counter: Tensor, alpha: float, *, name: str | None = None) -> Tensor:
    """counter (n, 4) -> shares (n,) in [1/2, 1]."""
    return MixShares(alpha)(counter, name=name)


def mix(x: Tensor, share: Tensor, *, name: str | None = None) -> Tensor:
    """x (n, ...), share (n,) -> each row mixed with the next; in evaluation x."""
    return Mix()(x, share, name=name) if x.graph.training else x


def one_hot(label: Tensor, classes: int, *, name: str | None = None) -> Tensor:
    """label (n,) integers -> (n, classes)."""
    return OneHot(classes)(label, name=name)


# The reference kernels.

SHARES = 4096  # entries: 12 bits of a random word choose one
FINE = 1 << 16  # points of the integral


def larger_shares(alpha: float) -> Array:
    """Quantiles (i + 1/2) / SHARES of max(b, 1 - b) for b of Beta(alpha, alpha): rising, in [1/2, 1], float64."""
    # P(b < x) for x <= 1/2 is proportional to the integral of z^(alpha - 1) (1 - z)^(alpha - 1) from 0 to x, which over
    # t = z^p has no pole at 0.
    p = min(alpha, 1.0)
    t = np.linspace(0.0, 0.5**p, FINE)
    density = (2.0 * t) ** (alpha / p - 1.0) * (2.0 - 2.0 * t ** (1.0 / p)) ** (alpha - 1.0)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return 1.0 - np.interp(1.0 - (np.arange(SHARES) + 0.5) / SHARES, below / below[-1], t) ** (1.0 / p)


@binds
def shares_forward(call: Call, counter: Array, y: Array, index: Array, words: Array, alpha: float) -> Run:
    fill = draw(call, counter)
    table = larger_shares(alpha).astype(y.dtype)
    word = words[0]
    shift = np.uint64(32 - (SHARES - 1).bit_length())

    def run() -> None:
        fill()
        np.right_shift(word, shift, out=word)
        np.copyto(index, word, casting="same_kind")
        table.take(index, out=y, mode="clip")

    return run


@binds
def mix_forward(x: Array, share: Array, y: Array) -> Run:
    share = share.reshape(-1, *[1] * (x.ndim - 1))
    rows = [(slice(None, -1), slice(1, None)), (slice(-1, None), slice(None, 1))]  # the last one's next is the first
    parts = [(x[own], x[other], share[own], y[own]) for own, other in rows]

    def run() -> None:
        for own, other, kept, mixed in parts:
            np.subtract(own, other, out=mixed)
            mixed *= kept
            mixed += other

    return run


@binds
def one_hot_forward(label: Array, y: Array, classes: int) -> Run:
    labels = label.reshape(-1, 1)
    numbers = np.arange(classes)
    return lambda: np.equal(labels, numbers, out=y, casting="unsafe")


KERNELS = {
    Mix: Kernel(mix_forward),
    MixShares: Kernel(
        shares_forward,
        buffers=lambda op, shapes: Buffers(forward={**draw_specs(shapes.y[0]), "index": (shapes.y, "int64")}),
    ),
    OneHot: Kernel(one_hot_forward),
}
