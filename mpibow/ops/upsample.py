"""Upsampling: nearest pixels, or interpolation."""

from typing import Literal

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Kernel, Op, Run, Shape, Shapes, Tensor, binds

from .window import Pair, pair

__all__ = ["Upsample", "upsample"]

Mode = Literal["nearest", "bilinear"]


class Upsample(Op):
    """y[n, c] = rows x[n, c] columns^T: by `mode`, with the weights of each output row and column as matrices."""

    scale: Pair
    mode: Mode
    kind = "upsample"

    def infer(self, x: Shape) -> Shape:
        if len(x) != 4 or min(self.scale) < 1 or self.mode not in ("nearest", "bilinear"):
            raise ShapeError(
                f"input must be (batch, channels, height, width), scale {self.scale} at least 1, "
                f"mode nearest or bilinear, got {self.mode}"
            )
        return (*x[:2], x[2] * self.scale[0], x[3] * self.scale[1])


def upsample(x: Tensor, scale: int | Pair = 2, *, mode: Mode = "nearest", name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> (n, c, h scale, w scale): PyTorch's interpolate, without align_corners."""
    return Upsample(pair(scale), mode)(x, name=name)


# The reference kernels.


def neighbours(extent: int, scale: int, mode: Mode) -> tuple[Array, Array, Array]:
    """The two lines between which each line of the larger image lies, and the second's share, all (extent scale,)."""
    i = np.arange(extent * scale)
    place = np.maximum((i + 0.5) / scale - 0.5, 0.0) if mode == "bilinear" else i // scale
    low = place.astype(np.int64)
    return low, np.minimum(low + 1, extent - 1), place - low


def weights(extent: int, scale: int, mode: Mode) -> Array:
    """(extent scale, extent): the weight of each pixel in each pixel of the larger image."""
    made = np.zeros((extent * scale, extent))
    i = np.arange(extent * scale)
    low, high, share = neighbours(extent, scale, mode)
    made[i, low] += 1 - share
    made[i, high] += share
    return made


def buffers(op: Upsample, shapes: Shapes) -> Buffers:
    wide = {"wide": ((*shapes.x[0][:3], shapes.y[3]), FLOAT)}
    return Buffers(forward=wide, backward=wide)


def _matrices(image: Array, scale: Pair, mode: Mode) -> list[Array]:
    return [
        weights(extent, each, mode).astype(image.dtype) for extent, each in zip(image.shape[2:], scale, strict=True)
    ]


@binds
def forward(x: Array, y: Array, wide: Array, scale: Pair, mode: Mode) -> Run:
    rows, columns = _matrices(x, scale, mode)
    return lambda: np.matmul(rows, np.matmul(x, columns.T, out=wide), out=y)


@binds
def backward(dy: Array, dx: Array, wide: Array, scale: Pair, mode: Mode) -> Run:
    rows, columns = _matrices(dx, scale, mode)
    return lambda: np.matmul(np.matmul(rows.T, dy, out=wide), columns, out=dx)


KERNELS = {Upsample: Kernel(forward, backward, buffers)}
