"""Rotary position embedding (Su et al., arXiv:2104.09864)."""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Kernel, Op, Run, Shape, Shapes, Tensor, binds

__all__ = ["Rotary", "rotary"]


class Rotary(Op):
    """Rotates the pair (x[i], x[i + d/2]) of x (..., t, d) at position p by p base^(-2i/d), positions from 0."""

    base: float
    kind = "rotary"

    def infer(self, x: Shape) -> Shape:
        if len(x) < 2 or x[-1] % 2 or self.base <= 0:
            raise ShapeError(f"input must be (..., positions, features), features even, base above 0, not {self.base}")
        return x


def rotary(x: Tensor, *, base: float = 10000.0, name: str | None = None) -> Tensor:
    """x (..., t, d) -> the same shape, with pairs of features rotated by an angle that depends on the position.

    Features i and i + d/2 are a pair, as in Hugging Face's Llama; Meta's own has neighbours, 2i and 2i + 1.
    """
    return Rotary(base)(x, name=name)


# The reference kernels.


def buffers(op: Rotary, shapes: Shapes) -> Buffers:
    half = {"part": ((*shapes.y[:-1], shapes.y[-1] // 2), FLOAT)}
    return Buffers(forward=half, backward=half)


def angles(op: Rotary, x: Shape) -> Array:
    """(positions, half the features): the angle of each pair of x (..., positions, features)."""
    half = x[-1] // 2
    return np.outer(np.arange(x[-2]), op.base ** (-np.arange(half) / half))


def _turn(op: Rotary, x: Array, y: Array, part: Array, sign: float) -> Run:
    """y <- x rotated one way or the other."""
    half = x.shape[-1] // 2
    turns = angles(op, x.shape)
    cos = np.cos(turns).astype(x.dtype)
    sin = (sign * np.sin(turns)).astype(x.dtype)
    (x0, x1), (y0, y1) = ((array[..., :half], array[..., half:]) for array in (x, y))

    def run() -> None:
        nonlocal y0, y1
        np.multiply(x0, cos, out=y0)
        np.multiply(x1, sin, out=part)
        y0 -= part
        np.multiply(x1, cos, out=y1)
        np.multiply(x0, sin, out=part)
        y1 += part

    return run


KERNELS = {
    Rotary: Kernel(
        binds(lambda op, x, y, part: _turn(op, x, y, part, 1.0)),
        binds(lambda op, dy, dx, part: _turn(op, dy, dx, part, -1.0)),
        buffers,
    )
}
