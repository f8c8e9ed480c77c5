"""Normalisation of inputs by mean and standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor
from mpibow.graph.kernel import Call, Kernel, Run

__all__ = ["Normalise", "normalise"]


@dataclass(frozen=True)
class Normalise(Op):
    """y = (x - mean) / std; x may be uint8, y is of the plan's precision. It has no gradient.

    `std` is one number a channel (axis 1), `mean` as well, or one for every value of a sample, in C order.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    kind = "normalise"
    integers = (0,)
    differentiable = None

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if len(x) < 2 or len(self.mean) not in (x[1], prod(x[1:])) or len(self.std) != x[1]:
            raise ShapeError(
                f"{len(self.mean)} means and {len(self.std)} standard deviations must be one a channel, "
                "or means one a value"
            )
        if min(self.std) <= 0:
            raise ShapeError(f"standard deviations must be above 0, got {min(self.std)}")
        return x


def normalise(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...], *, name: str | None = None) -> Tensor:
    """x (n, c, ...) of any dtype -> (x - mean) / std; `mean` has a number per channel or per value of a sample."""
    return x.graph.add(Normalise(tuple(mean), tuple(std)), x, name=name)


# The reference kernels.


def normalise_forward(call: Call) -> Run:
    x, y = call.x0, call.y
    shape = (-1, *([1] * (x.ndim - 2)))
    mean = np.array(call.op.mean, y.dtype).reshape(shape if len(call.op.mean) == x.shape[1] else x.shape[1:])
    scale = (1.0 / np.array(call.op.std, np.float64)).astype(y.dtype).reshape(shape)

    def run() -> None:
        nonlocal y
        np.subtract(x, mean, out=y)
        y *= scale

    return run


KERNELS = {
    Normalise: Kernel(normalise_forward),
}
