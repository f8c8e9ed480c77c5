"""Arithmetic of tensors and numbers, with broadcasting: what `+ - * / **` and mpibow.expand, divide and power mean.

Shapes that differ are broadcast as NumPy's and PyTorch's: the smaller tensor is expanded, then the operator of equal
shapes takes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Array, Op, Shape, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes
from mpibow.ops.activation import Elementwise
from mpibow.ops.combine import Add, Multiply, one_shape

__all__ = ["Affine", "Divide", "Expand", "Power", "affine", "divide", "expand", "power"]

Operand = Tensor | float | int


@dataclass(frozen=True)
class Affine(Elementwise):
    """y = scale x + shift: a tensor times a number, plus a number."""

    scale: float
    shift: float
    kind: ClassVar[str] = "affine"
    reads: ClassVar[frozenset[str]] = frozenset()

    def infer(self, *shapes: Shape) -> Shape:
        if not (isfinite(self.scale) and isfinite(self.shift)):
            raise ShapeError(f"numbers must be finite, got {self.scale} x + {self.shift}")
        return shapes[0]


@dataclass(frozen=True)
class Power(Elementwise):
    """y = x^exponent."""

    exponent: float
    kind: ClassVar[str] = "power"
    reads: ClassVar[frozenset[str]] = frozenset("x")

    def infer(self, *shapes: Shape) -> Shape:
        if not isfinite(self.exponent) or self.exponent == 0:
            raise ShapeError(f"exponent must be finite and not 0, got {self.exponent}")
        return shapes[0]


@dataclass(frozen=True)
class Divide(Op):
    """y = x0 / x1, element by element."""

    kind: ClassVar[str] = "divide"
    reads: ClassVar[frozenset[str]] = frozenset("xy")
    differentiable: ClassVar[tuple[int, ...] | None] = (0, 1)

    def infer(self, *shapes: Shape) -> Shape:
        return one_shape(shapes, 2)


@dataclass(frozen=True)
class Expand(Op):
    """y = x under more axes in front, and repeated along axes of extent 1."""

    shape: Shape
    kind: ClassVar[str] = "expand"

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        tail = self.shape[len(self.shape) - len(x) :]
        if len(x) > len(self.shape) or any(have not in (1, want) for have, want in zip(x, tail, strict=True)):
            raise ShapeError(f"{x} cannot be broadcast to {self.shape}: extents must be equal, or 1")
        return self.shape

    def dtype(self, *dtypes: str) -> str:
        return dtypes[0]


def affine(x: Tensor, scale: float = 1.0, shift: float = 0.0, *, name: str | None = None) -> Tensor:
    """scale x + shift, of any shape; x itself where that is the same."""
    if (scale, shift) == (1.0, 0.0) and name is None:
        return x
    return x.graph.add(Affine(float(scale), float(shift)), x, name=name)


def power(x: Tensor, exponent: float, *, name: str | None = None) -> Tensor:
    """x^exponent, of any shape; `x**2` as well."""
    return x.graph.add(Power(float(exponent)), x, name=name)


def expand(x: Tensor, shape: Shape, *, name: str | None = None) -> Tensor:
    """x broadcast to `shape`: more axes in front, axes of extent 1 repeated."""
    return x if x.shape == tuple(shape) else x.graph.add(Expand(tuple(shape)), x, name=name)


def broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All of them in the shape that they have in common. Raises ShapeError where there is none."""
    try:
        shape = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
    except ValueError:
        raise ShapeError(
            f"{' and '.join(f'{tensor.name} {tensor.shape}' for tensor in tensors)}: cannot be broadcast to one shape"
        ) from None
    return tuple(expand(tensor, shape) for tensor in tensors)


def divide(x: Tensor, y: Tensor, *, name: str | None = None) -> Tensor:
    """x / y, of tensors that are broadcast to one shape."""
    x, y = broadcast(x, y)
    return x.graph.add(Divide(), x, y, name=name)


def plus(x: Tensor, y: Operand) -> Tensor:
    if isinstance(y, Tensor):
        return x.graph.add(Add((1.0, 1.0)), *broadcast(x, y))
    return affine(x, 1.0, y)


def minus(x: Tensor, y: Operand) -> Tensor:
    if isinstance(y, Tensor):
        return x.graph.add(Add((1.0, -1.0)), *broadcast(x, y))
    return affine(x, 1.0, -y)


def times(x: Tensor, y: Operand) -> Tensor:
    if isinstance(y, Tensor):
        return x.graph.add(Multiply(2), *broadcast(x, y))
    return affine(x, y)


def over(x: Tensor, y: Operand) -> Tensor:
    return divide(x, y) if isinstance(y, Tensor) else affine(x, 1.0 / y)


def from_number(x: Tensor, y: float) -> Tensor:
    """y - x."""
    return affine(x, -1.0, y)


def number_over(x: Tensor, y: float) -> Tensor:
    """y / x."""
    return times(power(x, -1.0), y)


# The reference kernels.


def affine_forward(call: Call) -> Run:
    x, y, number = call.x[0], call.y, call.y.dtype.type
    scale, shift = number(call.op.scale), number(call.op.shift)

    def run() -> None:
        np.multiply(x, scale, out=y)
        np.add(y, shift, out=y)

    return run


def affine_backward(call: Call) -> Run:
    dy, dx, scale = call.dy, call.dx[0], call.dy.dtype.type(call.op.scale)

    def run() -> None:
        np.multiply(dy, scale, out=dx)

    return run


def _power(x: Array, exponent: float, out: Array) -> None:
    if exponent == 0:
        out.fill(1)
    elif exponent == 1:
        np.copyto(out, x)
    elif exponent == 2:
        np.multiply(x, x, out=out)
    else:
        np.power(x, x.dtype.type(exponent), out=out)


def power_forward(call: Call) -> Run:
    x, y, exponent = call.x[0], call.y, call.op.exponent
    return lambda: _power(x, exponent, y)


def power_backward(call: Call) -> Run:
    x, dy, dx, exponent = call.x[0], call.dy, call.dx[0], call.op.exponent
    factor = dy.dtype.type(exponent)
    assert dx is not None

    def run() -> None:
        _power(x, exponent - 1, dx)
        np.multiply(dx, factor, out=dx)
        np.multiply(dx, dy, out=dx)

    return run


def divide_forward(call: Call) -> Run:
    (x0, x1), y = call.x, call.y

    def run() -> None:
        np.divide(x0, x1, out=y)

    return run


def divide_buffers(op: Divide, shapes: Shapes) -> Buffers:
    return Buffers(backward={"part": (shapes.y, FLOAT)})


def divide_backward(call: Call) -> Run:
    x1, y, dy, (d0, d1), part = call.x[1], call.y, call.dy, call.dx, call.scratch["part"]

    def run() -> None:
        np.divide(dy, x1, out=part)
        if d0 is not None:
            np.copyto(d0, part)
        if d1 is not None:
            np.multiply(part, y, out=d1)
            np.negative(d1, out=d1)

    return run


def expand_forward(call: Call) -> Run:
    x, y = call.x[0], call.y

    def run() -> None:
        np.copyto(y, x)

    return run


def expand_backward(call: Call) -> Run:
    dy, dx = call.dy, call.dx[0]
    assert dx is not None
    whole = dx.reshape((1,) * (dy.ndim - dx.ndim) + dx.shape)
    axes = tuple(i for i, extent in enumerate(whole.shape) if extent != dy.shape[i])

    def run() -> None:
        np.sum(dy, axis=axes, keepdims=True, out=whole)

    return run


KERNELS: KernelTable = {
    Affine: Kernel(affine_forward, affine_backward),
    Divide: Kernel(divide_forward, divide_backward, divide_buffers),
    Expand: Kernel(expand_forward, expand_backward),
    Power: Kernel(power_forward, power_backward),
}
