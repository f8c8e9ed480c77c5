"""Elementary functions, element by element: neg, abs, exp, log, sqrt and silu."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpibow.graph.graph import FLOAT, Array, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes
from mpibow.ops.activation import Elementwise

__all__ = ["Abs", "Exp", "Log", "Negative", "Silu", "Sqrt", "abs", "exp", "log", "neg", "silu", "sqrt"]


@dataclass(frozen=True)
class Negative(Elementwise):
    """y = -x."""

    kind: ClassVar[str] = "neg"
    reads: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Abs(Elementwise):
    """y = |x|; its gradient is 0 at 0."""

    kind: ClassVar[str] = "abs"
    reads: ClassVar[frozenset[str]] = frozenset("x")


@dataclass(frozen=True)
class Exp(Elementwise):
    """y = exp(x)."""

    kind: ClassVar[str] = "exp"


@dataclass(frozen=True)
class Log(Elementwise):
    """y = log(x), the natural one."""

    kind: ClassVar[str] = "log"
    reads: ClassVar[frozenset[str]] = frozenset("x")


@dataclass(frozen=True)
class Sqrt(Elementwise):
    """y = sqrt(x)."""

    kind: ClassVar[str] = "sqrt"


@dataclass(frozen=True)
class Silu(Elementwise):
    """y = x / (1 + exp(-x)), also called swish (arXiv:1606.08415, 1702.03118)."""

    kind: ClassVar[str] = "silu"
    reads: ClassVar[frozenset[str]] = frozenset("x")


def neg(x: Tensor, *, name: str | None = None) -> Tensor:
    """-x, of any shape; `-x` as well."""
    return x.graph.add(Negative(), x, name=name)


def abs(x: Tensor, *, name: str | None = None) -> Tensor:
    """|x|, of any shape."""
    return x.graph.add(Abs(), x, name=name)


def exp(x: Tensor, *, name: str | None = None) -> Tensor:
    """exp(x), of any shape."""
    return x.graph.add(Exp(), x, name=name)


def log(x: Tensor, *, name: str | None = None) -> Tensor:
    """The natural logarithm, of any shape: NaN below 0."""
    return x.graph.add(Log(), x, name=name)


def sqrt(x: Tensor, *, name: str | None = None) -> Tensor:
    """The square root, of any shape: NaN below 0, an infinite gradient at 0."""
    return x.graph.add(Sqrt(), x, name=name)


def silu(x: Tensor, *, name: str | None = None) -> Tensor:
    """x / (1 + exp(-x)), of any shape."""
    return x.graph.add(Silu(), x, name=name)


# The reference kernels.


def forward_by(function: np.ufunc) -> Callable[[Call], Run]:
    """y <- function(x)."""

    def forward(call: Call) -> Run:
        x, y = call.x[0], call.y

        def run() -> None:
            function(x, out=y)

        return run

    return forward


def neg_backward(call: Call) -> Run:
    dy, dx = call.dy, call.dx[0]

    def run() -> None:
        np.negative(dy, out=dx)

    return run


def abs_backward(call: Call) -> Run:
    x, dy, dx = call.x[0], call.dy, call.dx[0]
    assert dx is not None

    def run() -> None:
        np.sign(x, out=dx)
        np.multiply(dx, dy, out=dx)

    return run


def exp_backward(call: Call) -> Run:
    y, dy, dx = call.y, call.dy, call.dx[0]

    def run() -> None:
        np.multiply(y, dy, out=dx)

    return run


def log_backward(call: Call) -> Run:
    x, dy, dx = call.x[0], call.dy, call.dx[0]

    def run() -> None:
        np.divide(dy, x, out=dx)

    return run


def sqrt_backward(call: Call) -> Run:
    y, dy, dx = call.y, call.dy, call.dx[0]
    assert dx is not None
    half = dy.dtype.type(0.5)

    def run() -> None:
        np.divide(dy, y, out=dx)
        np.multiply(dx, half, out=dx)

    return run


def silu_buffers(op: Silu, shapes: Shapes) -> Buffers:
    return Buffers(backward={"sigmoid": (shapes.y, FLOAT)})


def _sigmoid(x: Array, out: Array) -> None:
    """By tanh, which does not overflow."""
    half = x.dtype.type(0.5)
    np.multiply(x, half, out=out)
    np.tanh(out, out=out)
    np.multiply(out, half, out=out)
    np.add(out, half, out=out)


def silu_forward(call: Call) -> Run:
    x, y = call.x[0], call.y

    def run() -> None:
        _sigmoid(x, y)
        np.multiply(x, y, out=y)

    return run


def silu_backward(call: Call) -> Run:
    x, dy, dx, s = call.x[0], call.dy, call.dx[0], call.scratch["sigmoid"]
    assert dx is not None
    one = dy.dtype.type(1)

    def run() -> None:  # dy s (1 + x (1 - s))
        _sigmoid(x, s)
        np.subtract(one, s, out=dx)
        np.multiply(dx, x, out=dx)
        np.add(dx, one, out=dx)
        np.multiply(dx, s, out=dx)
        np.multiply(dx, dy, out=dx)

    return run


KERNELS: KernelTable = {
    Abs: Kernel(forward_by(np.absolute), abs_backward),
    Exp: Kernel(forward_by(np.exp), exp_backward),
    Log: Kernel(forward_by(np.log), log_backward),
    Negative: Kernel(forward_by(np.negative), neg_backward),
    Silu: Kernel(silu_forward, silu_backward, silu_buffers),
    Sqrt: Kernel(forward_by(np.sqrt), sqrt_backward),
}
