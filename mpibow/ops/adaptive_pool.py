"""Average pooling to a given size, and over the whole image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Array, Op, Shape, Tensor
from mpibow.graph.kernel import Call, Kernel, Run
from mpibow.ops.pool import avg_buffers, shares, spread
from mpibow.ops.window import Pair, check_images, pair

__all__ = ["AdaptiveAvgPool2d", "GlobalAvgPool2d", "adaptive_avg_pool2d", "global_avg_pool2d"]


@dataclass(frozen=True)
class AdaptiveAvgPool2d(Op):
    """y[n, c, i, j] = the mean of x over rows [i h // rows, ceil((i + 1) h / rows)), and columns likewise."""

    size: Pair
    kind = "adaptive_avg_pool"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        check_images(x)
        if min(self.size) < 1:
            raise ShapeError(f"size {self.size} must be at least 1")
        return (x[0], x[1], *self.size)


@dataclass(frozen=True)
class GlobalAvgPool2d(Op):
    """y[n, c] = the mean of x[n, c]."""

    kind = "global_avg_pool"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        check_images(x)
        return (x[0], x[1])


def adaptive_avg_pool2d(x: Tensor, size: int | Pair, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> (n, c, *size) with PyTorch's windows: they overlap if size does not divide h, w."""
    return x.graph.add(AdaptiveAvgPool2d(pair(size)), x, name=name)


def global_avg_pool2d(x: Tensor, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> (n, c), ready for a dense layer."""
    return x.graph.add(GlobalAvgPool2d(), x, name=name)


# The reference kernels.


def _adaptive(image: Array, y: Array) -> tuple[list[tuple[Array, Array]], Array]:
    """For every element of y (n, c, rows, columns): it (n, c, 1, 1) and its window; and 1 / the windows' sizes."""
    cuts = []
    for extent, count in zip(image.shape[2:], y.shape[2:], strict=True):
        cuts.append([slice(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)])
    pairs = [
        (y[:, :, i : i + 1, j : j + 1], image[:, :, rows, columns])
        for i, rows in enumerate(cuts[0])
        for j, columns in enumerate(cuts[1])
    ]
    counts = [np.array([cut.stop - cut.start for cut in along]) for along in cuts]
    return pairs, shares(counts, y)


def adaptive_forward(call: Call) -> Run:
    y = call.y
    pairs, scale = _adaptive(call.x0, y)

    def run() -> None:
        nonlocal y
        for target, window in pairs:
            np.sum(window, axis=(2, 3), keepdims=True, out=target)
        y *= scale

    return run


def adaptive_backward(call: Call) -> Run:
    return spread(call, *_adaptive(call.dx0, call.scratch["part"]))


def global_forward(call: Call) -> Run:
    x, y = call.x0, call.y
    scale = 1.0 / (x.shape[2] * x.shape[3])

    def run() -> None:
        nonlocal y
        np.sum(x, axis=(2, 3), out=y)
        y *= scale

    return run


def global_backward(call: Call) -> Run:
    dx = call.dx0
    dy, scale = call.dy[:, :, None, None], 1.0 / (dx.shape[2] * dx.shape[3])
    return lambda: np.multiply(dy, scale, out=dx)


KERNELS = {
    AdaptiveAvgPool2d: Kernel(adaptive_forward, adaptive_backward, avg_buffers),
    GlobalAvgPool2d: Kernel(global_forward, global_backward),
}
