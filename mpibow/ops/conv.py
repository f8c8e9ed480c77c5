"""Two-dimensional convolution (cross-correlation, as everywhere in deep learning)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Initialiser, Op, Shape, Tensor, Weight
from mpibow.ops.initialisers import Constant, He
from mpibow.ops.window import Pair, pair, window_shape


@dataclass(frozen=True)
class Conv2d(Op):
    """y[n, o, i, j] = bias[o] + sum over c, a, b of weight[o, c, a, b] * padded x[n, c, i stride + a, j stride + b]."""

    channels: int
    kernel: Pair
    stride: Pair
    padding: Pair
    bias: bool
    initial: Initialiser
    kind: ClassVar[str] = "conv"
    reads: ClassVar[frozenset[str]] = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        return (x[0], self.channels, *window_shape(x, self.kernel, self.stride, self.padding))

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        channels, area = shapes[0][1], self.kernel[0] * self.kernel[1]
        fan_in, fan_out = channels * area, self.channels * area
        weights = {"weight": Weight((self.channels, channels, *self.kernel), self.initial, fan_in, fan_out)}
        if self.bias:
            weights["bias"] = Weight((self.channels,), Constant(0.0), fan_in, fan_out, decay=False)
        return weights


def conv2d(
    x: Tensor,
    channels: int,
    kernel: int | Pair,
    *,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    bias: bool = True,
    initial: Initialiser | None = None,
    name: str | None = None,
) -> Tensor:
    """x (n, c, h, w) -> (n, channels, h', w'), h' = (h + 2 padding - kernel) // stride + 1. Starts as He, bias 0."""
    if channels < 1:
        raise ShapeError(f"conv2d of {x.name}: channels must be at least 1, got {channels}")
    op = Conv2d(channels, pair(kernel), pair(stride), pair(padding), bias, initial or He())
    return x.graph.add(op, x, name=name)
