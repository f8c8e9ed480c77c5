"""Batch normalisation (Ioffe and Szegedy, arXiv:1502.03167)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Initialiser, Op, Shape, Tensor, Weight
from mpibow.ops.initialisers import ONE, ZERO


@dataclass(frozen=True)
class BatchNorm(Op):
    """y = weight (x - mean) / sqrt(variance + epsilon) + bias, per channel (axis 1), algorithm 1 of the paper.

    In training mean and variance (biased) are the batch's, and the running ones move towards them by `momentum`, the
    variance unbiased, as PyTorch has it; in evaluation the running ones are taken.
    """

    epsilon: float
    momentum: float
    initial: Initialiser = ONE
    initial_bias: Initialiser = ZERO
    kind: ClassVar[str] = "batch_norm"
    reads: ClassVar[frozenset[str]] = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) < 2:
            raise ShapeError("input must be (batch, channels, ...)")
        return x

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        channels = (shapes[0][1],)
        return {
            "weight": Weight(channels, self.initial, channels[0], channels[0], decay=False),
            "bias": Weight(channels, self.initial_bias, channels[0], channels[0], decay=False),
        }

    def statistics(self, *shapes: Shape) -> Mapping[str, Weight]:
        channels = (shapes[0][1],)
        return {
            "mean": Weight(channels, ZERO, channels[0], channels[0], decay=False),
            "variance": Weight(channels, ONE, channels[0], channels[0], decay=False),
        }


def batch_norm(
    x: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.1,
    initial: Initialiser = ONE,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, c, ...) normalised per channel; `momentum` is the share of the new batch in the running statistics.

    The weight starts as `initial`, the bias as `initial_bias`.
    """
    if epsilon <= 0 or not 0 < momentum <= 1:
        raise ShapeError(
            f"batch_norm of {x.name}: epsilon must be above 0 and momentum in (0, 1], got {epsilon} and {momentum}"
        )
    return x.graph.add(BatchNorm(epsilon, momentum, initial, initial_bias), x, name=name)
