"""Dropout whose masks are a pure function of (seed, epoch, sample, node)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor

COUNTER = "counter"  # the graph input (batch, 4) uint32: seed, epoch, sample low, sample high


@dataclass(frozen=True)
class Dropout(Op):
    """y = x / (1 - rate) where the sample's random bits keep it, else 0; in evaluation y = x (arXiv:1207.0580)."""

    rate: float
    kind: ClassVar[str] = "dropout"

    def infer(self, *shapes: Shape) -> Shape:
        x, counter = shapes
        if counter != (x[0], 4):
            raise ShapeError("the counter must be (batch, 4)")
        return x

    def is_view(self, training: bool) -> bool:
        return not training or self.rate == 0.0


def dropout(x: Tensor, rate: float = 0.5, *, name: str | None = None) -> Tensor:
    """x (n, ...), each element dropped with probability `rate` in training, anew for every sample and epoch."""
    if not 0.0 <= rate < 1.0:
        raise ShapeError(f"dropout of {x.name}: rate must be in [0, 1), got {rate}")
    return x.graph.add(Dropout(rate), x, counter_of(x), name=name)


def counter_of(x: Tensor) -> Tensor:
    """The input that random numbers of x's samples are a function of."""
    return x.graph.input(COUNTER, (x.shape[0], 4), "uint32")
