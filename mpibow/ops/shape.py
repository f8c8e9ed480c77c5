"""Flatten, and zeros as more channels."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Array, Moving, Op, Shape, Tensor
from mpibow.graph.kernel import Call
from mpibow.ops.moves import MoveTable, Pairs, axis_in_memory, filled

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


def forward(call: Call) -> Pairs:
    here, behind = _parts(call, call.y, call.x0)
    return [(here, call.x0), filled(behind, 0)]  # every time: others use y's memory between runs


def backward(call: Call) -> Pairs:
    return [(call.dx0, _parts(call, call.dy, call.dx0)[0])]


def _parts(call: Call, whole: Array, x: Array) -> list[Array]:
    axis = axis_in_memory(call, 1)
    return np.split(whole, [x.shape[axis]], axis)


MOVES: MoveTable = {
    PadChannels: (forward, backward),
}
