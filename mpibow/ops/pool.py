"""Max and average pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpibow.graph.graph import Op, Shape, Tensor
from mpibow.ops.window import Pair, pair, window_shape


@dataclass(frozen=True)
class MaxPool2d(Op):
    """y[n, c, i, j] = the largest of a window of x; its gradient goes to the first of equals, row by row."""

    kernel: Pair
    stride: Pair
    kind: ClassVar[str] = "max_pool"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        rows, columns = window_shape(x, self.kernel, self.stride, (0, 0))
        return (x[0], x[1], rows, columns)


@dataclass(frozen=True)
class AvgPool2d(Op):
    """y[n, c, i, j] = the mean of a window of x."""

    kernel: Pair
    stride: Pair
    kind: ClassVar[str] = "avg_pool"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        rows, columns = window_shape(x, self.kernel, self.stride, (0, 0))
        return (x[0], x[1], rows, columns)


def max_pool2d(x: Tensor, kernel: int | Pair, *, stride: int | Pair | None = None, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> (n, c, h', w'); stride is the kernel unless given."""
    return x.graph.add(MaxPool2d(pair(kernel), pair(kernel if stride is None else stride)), x, name=name)


def avg_pool2d(x: Tensor, kernel: int | Pair, *, stride: int | Pair | None = None, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> (n, c, h', w'); stride is the kernel unless given."""
    return x.graph.add(AvgPool2d(pair(kernel), pair(kernel if stride is None else stride)), x, name=name)
