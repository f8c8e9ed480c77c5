"""More functions of one element: sin, cos, floor, sign, expm1, log1p and erf."""

from __future__ import annotations

import numpy as np

from mpibow.formulas import functions as f
from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
from mpibow.ops.activation import Elementwise, of_one
from mpibow.ops.gelu import buffers as chunk_buffers
from mpibow.ops.gelu import chunks_of, normal
from mpibow.ops.pointwise import Element, always

__all__ = ["Cos", "Erf", "Floor", "Log1p", "Sign", "Sin", "cos", "erf", "floor", "log1p", "sign", "sin"]


class Sin(Elementwise):
    """y = sin(x)."""

    kind = "sin"
    reads = frozenset("x")


class Cos(Elementwise):
    """y = cos(x)."""

    kind = "cos"
    reads = frozenset("x")


class Floor(Elementwise):
    """y = the largest whole number that is at most x; its gradient is 0."""

    kind = "floor"
    reads = frozenset()


class Sign(Elementwise):
    """y = 1, 0 or -1, as x is above, at or below 0; its gradient is 0."""

    kind = "sign"
    reads = frozenset()


class Log1p(Elementwise):
    """y = log(1 + x), exact near 0."""

    kind = "log1p"
    reads = frozenset("x")


class Erf(Elementwise):
    """y = erf(x) = 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""

    kind = "erf"
    reads = frozenset("x")


sin = of_one(Sin(), "sin(x), of any shape.")
cos = of_one(Cos(), "cos(x), of any shape.")
floor = of_one(Floor(), "The largest whole number that is at most x, of any shape; its gradient is 0.")
sign = of_one(Sign(), "1, 0 or -1, as x is above, at or below 0; its gradient is 0.")
log1p = of_one(Log1p(), "log(1 + x), of any shape, exact near 0.")
erf = of_one(Erf(), "The error function, of any shape.")


# Their formulas, and erf's reference kernel.


def sin_value(x: Element) -> Element:
    return f.sin(x)


def sin_gradient(x: Element, dy: Element) -> Element:
    return f.cos(x) * dy


def cos_value(x: Element) -> Element:
    return f.cos(x)


def cos_gradient(x: Element, dy: Element) -> Element:
    return -f.sin(x) * dy


def floor_value(x: Element) -> Element:
    return f.floor(x)


def sign_value(x: Element) -> Element:
    return f.sign(x)


def no_gradient(dy: Element) -> Element:
    return 0 * dy


def log1p_value(x: Element) -> Element:
    return f.log1p(x)


def log1p_gradient(x: Element, dy: Element) -> Element:
    return dy / (1 + x)


def erf_buffers(op: Erf, shapes: Shapes) -> Buffers:
    return Buffers(forward={**chunk_buffers(op, shapes).forward, "part": (shapes.y, FLOAT)})


def erf_forward(call: Call) -> Run:
    chunks = chunks_of(call, call.x0, call.y, call.scratch["part"])

    def run() -> None:  # 2 P(sqrt(2) x) - 1
        for x, y, part, bell, work, mask in chunks:
            np.multiply(x, 2**0.5, out=part)
            normal(part, y, bell, work, mask)
            y *= 2
            y -= 1

    return run


def erf_backward(call: Call) -> Run:
    x, dy, dx = call.x0, call.dy, call.dx0

    def run() -> None:
        nonlocal dx
        np.multiply(x, x, out=dx)
        np.negative(dx, out=dx)
        np.exp(dx, out=dx)
        dx *= 2 / np.pi**0.5
        dx *= dy

    return run


FORMULAS = {
    Cos: always(cos_value, cos_gradient),
    Floor: always(floor_value, no_gradient),
    Log1p: always(log1p_value, log1p_gradient),
    Sign: always(sign_value, no_gradient),
    Sin: always(sin_value, sin_gradient),
}

KERNELS = {
    Erf: Kernel(erf_forward, erf_backward, erf_buffers),
}
