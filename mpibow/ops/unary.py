"""Elementary functions, element by element: neg, abs, exp, log, sqrt and silu."""

from __future__ import annotations

from mpibow.formulas import functions as f
from mpibow.ops.activation import Elementwise, of_one
from mpibow.ops.pointwise import Element, always

__all__ = ["Abs", "Exp", "Log", "Negative", "Silu", "Sqrt", "abs", "exp", "log", "neg", "silu", "sqrt"]


class Negative(Elementwise):
    """y = -x."""

    kind = "neg"
    reads = frozenset()


class Abs(Elementwise):
    """y = |x|; its gradient is 0 at 0."""

    kind = "abs"
    reads = frozenset("x")


class Exp(Elementwise):
    """y = exp(x)."""

    kind = "exp"


class Log(Elementwise):
    """y = log(x), the natural one."""

    kind = "log"
    reads = frozenset("x")


class Sqrt(Elementwise):
    """y = sqrt(x)."""

    kind = "sqrt"


class Silu(Elementwise):
    """y = x / (1 + exp(-x)), also called swish (arXiv:1606.08415, 1702.03118)."""

    kind = "silu"
    reads = frozenset("x")


neg = of_one(Negative(), "-x, of any shape; `-x` as well.")
abs = of_one(Abs(), "|x|, of any shape.")
exp = of_one(Exp(), "exp(x), of any shape.")
log = of_one(Log(), "The natural logarithm, of any shape: NaN below 0.")
sqrt = of_one(Sqrt(), "The square root, of any shape: NaN below 0, an infinite gradient at 0.")
silu = of_one(Silu(), "x / (1 + exp(-x)), of any shape.")


# Their formulas.


def neg_value(x: Element) -> Element:
    return -x


def neg_gradient(dy: Element) -> Element:
    return -dy


def abs_value(x: Element) -> Element:
    return f.abs(x)


def abs_gradient(x: Element, dy: Element) -> Element:
    return f.sign(x) * dy


def exp_value(x: Element) -> Element:
    return f.exp(x)


def exp_gradient(y: Element, dy: Element) -> Element:
    return y * dy


def log_value(x: Element) -> Element:
    return f.log(x)


def log_gradient(x: Element, dy: Element) -> Element:
    return dy / x


def sqrt_value(x: Element) -> Element:
    return f.sqrt(x)


def sqrt_gradient(y: Element, dy: Element) -> Element:
    return 0.5 * dy / y


def silu_value(x: Element) -> Element:
    return x / (1 + f.exp(-x))


def silu_gradient(x: Element, dy: Element) -> Element:
    s = 1 / (1 + f.exp(-x))
    return dy * s * (1 + x * (1 - s))


FORMULAS = {
    Abs: always(abs_value, abs_gradient),
    Exp: always(exp_value, exp_gradient),
    Log: always(log_value, log_gradient),
    Negative: always(neg_value, neg_gradient),
    Silu: always(silu_value, silu_gradient),
    Sqrt: always(sqrt_value, sqrt_gradient),
}
