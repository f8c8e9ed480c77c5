"""Max and average pooling, over windows and over the whole image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor
from mpibow.ops.window import Pair, pair, window_shape


def _pooled(x: Shape, kernel: Pair, stride: Pair, padding: Pair, ceil: bool) -> Shape:
    rows, columns = window_shape(x, kernel, stride, padding, ceil=ceil)
    if 2 * padding[0] > kernel[0] or 2 * padding[1] > kernel[1]:  # else a window could lie outside the image
        raise ShapeError(f"padding {padding} must be at most half of kernel {kernel}")
    return (x[0], x[1], rows, columns)


@dataclass(frozen=True)
class MaxPool2d(Op):
    """y[n, c, i, j] = the largest of a window of x; its gradient goes to the first of equals, row by row.

    Padding never wins. `ceil` lets the last window hang over the end.
    """

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil: bool = False
    kind: ClassVar[str] = "max_pool"

    def infer(self, *shapes: Shape) -> Shape:
        return _pooled(shapes[0], self.kernel, self.stride, self.padding, self.ceil)


@dataclass(frozen=True)
class AvgPool2d(Op):
    """y[n, c, i, j] = the mean of a window of x.

    The padding (zeros) is counted unless `count_padding` is False; what hangs over it with `ceil` never is.
    """

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil: bool = False
    count_padding: bool = True
    kind: ClassVar[str] = "avg_pool"

    def infer(self, *shapes: Shape) -> Shape:
        return _pooled(shapes[0], self.kernel, self.stride, self.padding, self.ceil)


@dataclass(frozen=True)
class AdaptiveAvgPool2d(Op):
    """y[n, c, i, j] = the mean of x over rows [i h // rows, ceil((i + 1) h / rows)), and columns likewise."""

    size: Pair
    kind: ClassVar[str] = "adaptive_avg_pool"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) != 4:
            raise ShapeError("input must be (batch, channels, height, width)")
        if min(self.size) < 1:
            raise ShapeError(f"size {self.size} must be at least 1")
        return (x[0], x[1], *self.size)


@dataclass(frozen=True)
class GlobalAvgPool2d(Op):
    """y[n, c] = the mean of x[n, c]."""

    kind: ClassVar[str] = "global_avg_pool"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) != 4:
            raise ShapeError("input must be (batch, channels, height, width)")
        return (x[0], x[1])


def max_pool2d(
    x: Tensor,
    kernel: int | Pair,
    *,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    ceil: bool = False,
    name: str | None = None,
) -> Tensor:
    """x (n, c, h, w) -> (n, c, h', w'); stride is the kernel unless given. PyTorch's rules (ceil: its ceil_mode)."""
    op = MaxPool2d(pair(kernel), pair(kernel if stride is None else stride), pair(padding), ceil)
    return x.graph.add(op, x, name=name)


def avg_pool2d(
    x: Tensor,
    kernel: int | Pair,
    *,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    ceil: bool = False,
    count_padding: bool = True,
    name: str | None = None,
) -> Tensor:
    """x (n, c, h, w) -> (n, c, h', w'); stride is the kernel unless given. PyTorch's rules (count_include_pad too)."""
    op = AvgPool2d(pair(kernel), pair(kernel if stride is None else stride), pair(padding), ceil, count_padding)
    return x.graph.add(op, x, name=name)


def adaptive_avg_pool2d(x: Tensor, size: int | Pair, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> (n, c, *size) for any h, w, by PyTorch's windows: they overlap where size does not divide."""
    return x.graph.add(AdaptiveAvgPool2d(pair(size)), x, name=name)


def global_avg_pool2d(x: Tensor, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> (n, c), ready for a dense layer."""
    return x.graph.add(GlobalAvgPool2d(), x, name=name)
