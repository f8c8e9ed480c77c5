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
    """y[n, o, i, j] = bias[o] + sum over c, a, b of
    weight[o, c, a, b] * padded x[n, c, i stride + a dilation, j stride + b dilation].

    With g groups, output channels o of the q-th g-th see the q-th g-th of the input channels only: c counts in there.
    """

    channels: int
    kernel: Pair
    stride: Pair
    padding: Pair
    bias: bool
    initial: Initialiser
    groups: int = 1
    dilation: Pair = (1, 1)
    kind: ClassVar[str] = "conv"
    reads: ClassVar[frozenset[str]] = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        rows, columns = window_shape(x, self.kernel, self.stride, self.padding, self.dilation)
        if self.groups < 1 or x[1] % self.groups or self.channels % self.groups:
            raise ShapeError(
                f"groups must divide the {x[1]} channels of the input and the {self.channels} of the output, "
                f"got {self.groups}"
            )
        return (x[0], self.channels, rows, columns)

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        channels, area = shapes[0][1] // self.groups, self.kernel[0] * self.kernel[1]
        fan_in, fan_out = channels * area, self.channels // self.groups * area
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
    dilation: int | Pair = 1,
    groups: int = 1,
    bias: bool = True,
    initial: Initialiser | None = None,
    name: str | None = None,
) -> Tensor:
    """x (n, c, h, w) -> (n, channels, h', w'), h' = (h + 2 padding - reach) // stride + 1. Starts as He, bias 0.

    reach = dilation (kernel - 1) + 1. weight is (channels, c / groups, *kernel); groups = c is a depthwise convolution.
    """
    if channels < 1:
        raise ShapeError(f"conv2d of {x.name}: channels must be at least 1, got {channels}")
    op = Conv2d(channels, pair(kernel), pair(stride), pair(padding), bias, initial or He(), groups, pair(dilation))
    return x.graph.add(op, x, name=name)
