"""Softplus, a smooth relu."""

from __future__ import annotations

from mpibow.formulas import functions as f
from mpibow.ops.activation import Elementwise, of_one
from mpibow.ops.pointwise import Element, always

__all__ = ["Softplus", "softplus"]


class Softplus(Elementwise):
    """y = log(1 + exp(x))."""

    kind = "softplus"
    reads = frozenset("x")


softplus = of_one(Softplus(), "log(1 + exp(x)), of any shape.")


def value(x: Element) -> Element:
    return f.maximum(x, 0) + f.log1p(f.exp(-f.abs(x)))


def gradient(x: Element, dy: Element) -> Element:
    return dy / (1 + f.exp(-x))


FORMULAS = {Softplus: always(value, gradient)}
