"""Activations, element by element.

The gradients of the first five read the output only: the input's memory is free by then.
"""

from math import inf

from mpibow.errors import ShapeError
from mpibow.formulas import functions as f
from mpibow.graph import Shape, Tensor

from .pointwise import Element, Elementary, Pointwise, of_one

__all__ = [
    "ClippedRelu",
    "LeakyRelu",
    "Relu",
    "Sigmoid",
    "Silu",
    "Softplus",
    "Tanh",
    "clipped_relu",
    "leaky_relu",
    "relu",
    "sigmoid",
    "silu",
    "softplus",
    "tanh",
]


class Relu(Pointwise):
    """y = max(x, 0)."""

    kind = "relu"

    @staticmethod
    def value(x: Element) -> Element:
        return f.maximum(x, 0)

    @staticmethod
    def gradient(y: Element, dy: Element) -> Element:
        return f.where(y > 0, dy, 0)


class Sigmoid(Pointwise):
    """y = 1 / (1 + exp(-x))."""

    kind = "sigmoid"

    @staticmethod
    def value(x: Element) -> Element:
        return 1 / (1 + f.exp(-x))

    @staticmethod
    def gradient(y: Element, dy: Element) -> Element:
        return dy * (y * (1 - y))


class Tanh(Elementary):
    """y = tanh(x)."""

    kind = "tanh"

    @staticmethod
    def gradient(y: Element, dy: Element) -> Element:
        return dy * (1 - y * y)


class LeakyRelu(Pointwise):
    """y = x where x > 0, else slope x (Maas et al., ICML 2013 workshop)."""

    slope: float
    kind = "leaky_relu"

    def infer(self, x: Shape) -> Shape:
        if not 0.0 <= self.slope < inf:  # below 0 the output's sign would not be the input's
            raise ShapeError(f"slope must be at least 0, got {self.slope}")
        return x

    @staticmethod
    def value(x: Element, *, slope: float) -> Element:
        return f.where(x > 0, x, slope * x)

    @staticmethod
    def gradient(y: Element, dy: Element, *, slope: float) -> Element:
        return f.where(y > 0, dy, slope * dy)


class ClippedRelu(Pointwise):
    """y = min(max(x, 0), ceiling); its gradient is 0 at both ends."""

    ceiling: float
    kind = "clipped_relu"

    def infer(self, x: Shape) -> Shape:
        if not 0.0 < self.ceiling < inf:
            raise ShapeError(f"ceiling must be above 0, got {self.ceiling}")
        return x

    @staticmethod
    def value(x: Element, *, ceiling: float) -> Element:
        return f.minimum(f.maximum(x, 0), ceiling)

    @staticmethod
    def gradient(y: Element, dy: Element, *, ceiling: float) -> Element:
        return f.where(y > 0, f.where(y < ceiling, dy, 0), 0)


class Silu(Pointwise):
    """y = x / (1 + exp(-x)), also called swish (arXiv:1606.08415, 1702.03118)."""

    kind = "silu"

    @staticmethod
    def value(x: Element) -> Element:
        return x / (1 + f.exp(-x))

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        s = 1 / (1 + f.exp(-x))
        return dy * s * (1 + x * (1 - s))


class Softplus(Pointwise):
    """y = log(1 + exp(x)), a smooth relu."""

    kind = "softplus"

    @staticmethod
    def value(x: Element) -> Element:
        return f.maximum(x, 0) + f.log1p(f.exp(-f.abs(x)))

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return dy / (1 + f.exp(-x))


relu = of_one(Relu(), "max(x, 0), of any shape.")
sigmoid = of_one(Sigmoid(), "1 / (1 + exp(-x)), of any shape.")
tanh = of_one(Tanh(), "tanh(x), of any shape.")
silu = of_one(Silu(), "x / (1 + exp(-x)), of any shape.")
softplus = of_one(Softplus(), "log(1 + exp(x)), of any shape.")


def leaky_relu(x: Tensor, slope: float = 0.01, *, name: str | None = None) -> Tensor:
    """x where x > 0, else slope x, of any shape."""
    return LeakyRelu(slope)(x, name=name)


def clipped_relu(x: Tensor, ceiling: float = 6.0, *, name: str | None = None) -> Tensor:
    """min(max(x, 0), ceiling), of any shape; the default ceiling is 6 (relu6)."""
    return ClippedRelu(ceiling)(x, name=name)
