"""Means over windows, over as many as a size has, and over the whole image."""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Kernel, Op, Run, Shape, Shapes, Tensor, binds, runs

from .moves import Pairs
from .pool import Pool, elements_of
from .window import Pair, check_images, pair

__all__ = [
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "GlobalAvgPool2d",
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "global_avg_pool2d",
]


class AvgPool2d(Pool):
    """y[n, c, i, j] = the mean of a window of x.

    The padding (zeros) is counted unless `count_padding` is False; elements beyond it with `ceil` never are.
    """

    count_padding: bool = True
    kind = "avg_pool"

    def along(self, axis: int, extent: int, count: int) -> tuple[Array, Array]:
        """The bounds of `count` windows inside the image, int64 (2, count), and the elements that each counts."""
        begin = np.arange(count) * self.stride[axis] - self.padding[axis]
        end = np.minimum(begin + self.kernel[axis], extent + self.padding[axis])
        inside = np.array([np.maximum(begin, 0), np.minimum(end, extent)])
        return inside, end - begin if self.count_padding else inside[1] - inside[0]


class AdaptiveAvgPool2d(Op):
    """y[n, c, i, j] = the mean of x over rows [i h // rows, ceil((i + 1) h / rows)), and columns likewise."""

    size: Pair
    kind = "adaptive_avg_pool"

    def infer(self, x: Shape) -> Shape:
        check_images(x)
        if min(self.size) < 1:
            raise ShapeError(f"size {self.size} must be at least 1")
        return (*x[:2], *self.size)

    def along(self, axis: int, extent: int, count: int) -> tuple[Array, Array]:
        """As AvgPool2d's."""
        i = np.arange(count)
        inside = np.array([i * extent // count, -(-(i + 1) * extent // count)])
        return inside, inside[1] - inside[0]


class GlobalAvgPool2d(Op):
    """y[n, c] = the mean of x[n, c]."""

    kind = "global_avg_pool"

    def infer(self, x: Shape) -> Shape:
        check_images(x)
        return x[:2]


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
    """x (n, c, h, w) -> (n, c, h', w'); stride defaults to the kernel; `count_padding`: count_include_pad."""
    op = AvgPool2d(pair(kernel), pair(kernel if stride is None else stride), pair(padding), ceil, count_padding)
    return op(x, name=name)


def adaptive_avg_pool2d(x: Tensor, size: int | Pair, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> (n, c, *size) with PyTorch's windows: they overlap if size does not divide h, w."""
    return AdaptiveAvgPool2d(pair(size))(x, name=name)


def global_avg_pool2d(x: Tensor, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> (n, c), ready for a dense layer."""
    return GlobalAvgPool2d()(x, name=name)


# The reference kernels.


def shares(op: AvgPool2d | AdaptiveAvgPool2d, image: Array, y: Array) -> Array:
    """1 / how many elements of the image each window counts, (rows, columns)."""
    rows, columns = (op.along(axis, image.shape[2 + axis], y.shape[2 + axis])[1] for axis in (0, 1))
    return (1.0 / np.outer(rows, columns)).astype(y.dtype)


@binds
def avg_forward(op: AvgPool2d, x: Array, y: Array) -> Run:
    pairs = [(y[..., *part], element) for _, part, element in elements_of(op, x, y.shape)]
    scale = shares(op, x, y)

    def run() -> None:
        nonlocal y
        y.fill(0)
        for target, element in pairs:
            target += element
        y *= scale

    return run


def avg_buffers(op: Op, shapes: Shapes) -> Buffers:
    return Buffers(backward={"part": (shapes.y, FLOAT)})


@binds
def avg_backward(op: AvgPool2d, dy: Array, dx: Array, part: Array) -> Run:
    pairs = [(part[..., *where], element) for _, where, element in elements_of(op, dx, dy.shape)]
    return spread(dy, dx, part, pairs, shares(op, dx, dy))


def spread(dy: Array, dx: Array, part: Array, pairs: Pairs, scale: Array) -> Run:
    """dx <- the gradients of means: of each pair (a part of the scaled dy, elements of dx) the first is added."""

    def run() -> None:
        np.multiply(dy, scale, out=part)
        dx.fill(0)
        for source, element in pairs:
            element += source

    return run


def _adaptive(op: AdaptiveAvgPool2d, image: Array, y: Array) -> tuple[Pairs, Array]:
    """For every element of y (n, c, rows, columns): it (n, c, 1, 1) and its window; and 1 / the windows' sizes."""
    rows, columns = (op.along(axis, image.shape[2 + axis], y.shape[2 + axis])[0].T.tolist() for axis in (0, 1))
    pairs = [
        (y[:, :, i : i + 1, j : j + 1], image[:, :, top:bottom, left:right])
        for i, (top, bottom) in enumerate(rows)
        for j, (left, right) in enumerate(columns)
    ]
    return pairs, shares(op, image, y)


@binds
def adaptive_forward(op: AdaptiveAvgPool2d, x: Array, y: Array) -> Run:
    pairs, _ = _adaptive(op, x, y)
    return lambda: [np.mean(window, axis=(2, 3), keepdims=True, out=target) for target, window in pairs]


KERNELS = {
    AdaptiveAvgPool2d: Kernel(
        adaptive_forward, binds(lambda op, dy, dx, part: spread(dy, dx, part, *_adaptive(op, dx, part))), avg_buffers
    ),
    AvgPool2d: Kernel(avg_forward, avg_backward, avg_buffers),
    GlobalAvgPool2d: Kernel(
        runs(lambda x, y: np.mean(x, axis=(2, 3), out=y)),
        runs(lambda dy, dx: np.multiply(dy[:, :, None, None], 1.0 / (dx.shape[2] * dx.shape[3]), out=dx)),
    ),
}
