"""Local response normalisation across channels (Krizhevsky et al., NIPS 2012, section 3.3)."""

from math import inf

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Kernel, Op, Run, Shape, Shapes, Tensor, binds

from .moves import Pairs

__all__ = ["LocalResponseNorm", "local_response_norm"]


class LocalResponseNorm(Op):
    """y[n, c] = x[n, c] (k + alpha / size * sum of x[n, j]^2)^-beta, c - size // 2 <= j <= c + (size - 1) // 2.

    The sum stops at the first and last channel; it is divided by `size` there too. This is PyTorch's, oneDNN's and
    cuDNN's alpha. The paper writes alpha without `/ size`: its 1e-4 with size 5 is 5e-4 here.
    """

    size: int
    alpha: float
    beta: float
    k: float
    kind = "local_response_norm"
    reads = "x"

    def infer(self, x: Shape) -> Shape:
        if len(x) < 2:
            raise ShapeError("input must be (batch, channels, ...)")
        if self.size < 1:
            raise ShapeError(f"size must be at least 1, got {self.size}")
        if not (0.0 <= self.alpha < inf and 0.0 <= self.beta < inf and 0.0 < self.k < inf):
            raise ShapeError(
                f"alpha and beta must be at least 0 and k above 0, got alpha {self.alpha}, beta {self.beta}, k {self.k}"
            )
        return x


def local_response_norm(
    x: Tensor, size: int = 5, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, name: str | None = None
) -> Tensor:
    """x (n, c, ...) -> the same shape, each value divided by a power of its neighbour channels' mean square.

    Defaults are PyTorch's; AlexNet as published is alpha=5e-4, k=2 (LocalResponseNorm explains 5e-4).
    """
    return LocalResponseNorm(size, alpha, beta, k)(x, name=name)


# The reference kernels: sums over neighbour channels as sums of shifted views.


def buffers(op: LocalResponseNorm, shapes: Shapes) -> Buffers:
    like = (shapes.y, FLOAT)
    return Buffers(saved={"base": like}, forward={"part": like}, backward={"part": like, "power": like})


def _shifts(source: Array, target: Array, before: int, after: int) -> Pairs:
    """Pairs that make target[:, c] += source[:, c - before : c + after + 1], but for that at c itself."""
    channels = source.shape[1]
    return [
        (target[:, max(0, -shift) : channels - max(0, shift)], source[:, max(0, shift) : channels + min(0, shift)])
        for shift in range(-min(before, channels - 1), min(after, channels - 1) + 1)
        if shift
    ]


@binds
def forward(x: Array, y: Array, base: Array, part: Array, size: int, alpha: float, beta: float, k: float) -> Run:
    shifts = _shifts(part, base, size // 2, (size - 1) // 2)

    def run() -> None:  # base = k + alpha / size sum(x^2)
        nonlocal base
        np.multiply(x, x, out=part)
        np.copyto(base, part)
        for target, source in shifts:
            target += source
        base *= alpha / size
        base += k
        np.power(base, -beta, out=part)
        np.multiply(x, part, out=y)

    return run


@binds
def backward(
    x: Array, dy: Array, dx: Array, base: Array, part: Array, power: Array, size: int, alpha: float, beta: float
) -> Run:
    shifts = _shifts(part, dx, (size - 1) // 2, size // 2)  # reversed: the channels with neighbour c

    def run() -> None:  # dy base^-beta - 2 alpha beta / size x sum(dy x base^(-beta - 1))
        nonlocal dx, part, power
        np.power(base, -beta, out=power)
        power *= dy
        np.multiply(power, x, out=part)
        part /= base
        np.copyto(dx, part)
        for target, source in shifts:
            target += source
        dx *= x
        dx *= -2 * alpha * beta / size
        dx += power

    return run


KERNELS = {LocalResponseNorm: Kernel(forward, backward, buffers)}
