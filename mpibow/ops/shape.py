"""Flatten, and zeros as more channels."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Moving, Op, Shape, Tensor
from mpibow.graph.kernel import Call, Kernel, KernelTable, Run

__all__ = ["Flatten", "PadChannels", "flatten", "pad_channels"]


@dataclass(frozen=True)
class Flatten(Moving):
    """x (n, ...) -> (n, everything else). A view: no kernel runs."""

    kind = "flatten"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) < 2:
            raise ShapeError("input must have a batch axis and at least one more")
        return (x[0], prod(x[1:]))

    def is_view(self, training: bool) -> bool:
        return True


@dataclass(frozen=True)
class PadChannels(Op):
    """x (n, c, ...) -> (n, channels, ...): x first, zeros after it."""

    channels: int
    kind = "pad_channels"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) < 2:
            raise ShapeError("input must be (batch, channels, ...)")
        if self.channels < x[1]:
            raise ShapeError(f"channels must be at least the {x[1]} of the input, got {self.channels}")
        return (x[0], self.channels, *x[2:])


def flatten(x: Tensor, *, name: str | None = None) -> Tensor:
    """x (n, ...) -> (n, features)."""
    return x.graph.add(Flatten(), x, name=name)


def pad_channels(x: Tensor, channels: int, *, name: str | None = None) -> Tensor:
    """x (n, c, ...) -> (n, channels, ...), with zeros after the c channels."""
    return x.graph.add(PadChannels(channels), x, name=name)


# The reference kernels.


def pad_forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    here, zeros = y[:, : x.shape[1]], y[:, x.shape[1] :]

    def run() -> None:  # zeros every time: others use y's memory between runs
        np.copyto(here, x)
        zeros.fill(0)

    return run


def pad_backward(call: Call) -> Run:
    dx = call.dx0
    here = call.dy[:, : dx.shape[1]]
    return lambda: np.copyto(dx, here)


KERNELS: KernelTable = {
    PadChannels: Kernel(pad_forward, pad_backward),
}
