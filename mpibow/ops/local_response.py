"""Local response normalisation across channels (Krizhevsky et al., NIPS 2012, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor


@dataclass(frozen=True)
class LocalResponseNorm(Op):
    """y[n, c] = x[n, c] (k + alpha / size * sum of x[n, j]^2)^-beta, c - size // 2 <= j <= c + (size - 1) // 2.

    The sum stops at the first and last channel; it is divided by `size` there too. This is PyTorch's, oneDNN's and
    cuDNN's alpha. The paper writes alpha without `/ size`: its 1e-4 with size 5 is 5e-4 here.
    """

    size: int
    alpha: float
    beta: float
    k: float
    kind: ClassVar[str] = "local_response_norm"
    reads: ClassVar[frozenset[str]] = frozenset("x")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
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

    Defaults are PyTorch's; AlexNet as published is alpha=5e-4, k=2 (LocalResponseNorm says why 5e-4).
    """
    return x.graph.add(LocalResponseNorm(size, alpha, beta, k), x, name=name)
