"""Arithmetic of tensors and numbers, with broadcasting: `+ - * / **`, expand, divide and power.

Shapes that differ are broadcast as in NumPy and PyTorch: the smaller tensor is expanded, then the operator of equal
shapes takes both. Integers become floats.
"""

from math import frexp, isfinite

import numpy as np

from mpibow.errors import ShapeError
from mpibow.formulas import Formula, formula, functions as f
from mpibow.graph import Array, Kernel, Moving, Run, Shape, Tensor, binds, runs

from .cast import cast, floats
from .combine import Add, Multiply, one_shape
from .pointwise import Element, Pointwise

__all__ = ["Affine", "Divide", "DivideBy", "Expand", "Power", "Remainder", "affine", "divide", "expand", "power"]

Operand = Tensor | float | int


class Affine(Pointwise):
    """y = scale x + shift: a tensor times a number, plus a number."""

    scale: float
    shift: float
    kind = "affine"

    def infer(self, x: Shape) -> Shape:
        if not (isfinite(self.scale) and isfinite(self.shift)):
            raise ShapeError(f"numbers must be finite, got {self.scale} x + {self.shift}")
        return x

    @staticmethod
    def value(x: Element, *, scale: float, shift: float) -> Element:
        return scale * x + shift

    @staticmethod
    def gradient(dy: Element, *, scale: float) -> Element:
        return scale * dy


class Power(Pointwise):
    """y = x^exponent."""

    exponent: float
    kind = "power"
    reads = "x"

    def infer(self, x: Shape) -> Shape:
        if not isfinite(self.exponent) or self.exponent == 0:
            raise ShapeError(f"exponent must be finite and not 0, got {self.exponent}")
        return x

    def half(self, backward: bool) -> Formula:
        return formula(POWERS.get(self.exponent, (power_value, power_gradient))[backward])


class _OfTwo(Pointwise):
    """Of two tensors of one shape."""

    differentiable = (0, 1)

    def infer(self, *shapes: Shape) -> Shape:
        return one_shape(shapes, 2)


class Divide(_OfTwo):
    """y = x0 / x1, element by element."""

    kind = "divide"

    @staticmethod
    def value(x0: Element, x1: Element) -> Element:
        return x0 / x1

    @staticmethod
    def gradient(x1: Element, y: Element, dy: Element) -> Element:
        part = dy / x1
        return part, -part * y


class DivideBy(Pointwise):
    """y = x / number, rounded once."""

    number: float
    kind = "divide_by"

    @staticmethod
    def value(x: Element, *, number: float) -> Element:
        return x / number

    @staticmethod
    def gradient(dy: Element, *, number: float) -> Element:
        return dy / number


class Remainder(_OfTwo):
    """y = x0 - floor(x0 / x1) x1, exact; its sign is x1's, as PyTorch's and Python's."""

    kind = "remainder"

    @staticmethod
    def value(x0: Element, x1: Element) -> Element:
        rest = f.fmod(x0, x1)
        return f.where((rest < 0 and x1 > 0) or (rest > 0 and x1 < 0), rest + x1, rest)

    @staticmethod
    def gradient(x0: Element, x1: Element, y: Element, dy: Element) -> Element:
        return dy, dy * (y - x0) / x1


def fits(x: Shape, shape: Shape) -> bool:
    """Whether x can be broadcast to `shape`."""
    pairs = zip(reversed(x), reversed(shape), strict=False)
    return len(x) <= len(shape) and all(have in (1, want) for have, want in pairs)


class Expand(Moving):
    """y = x under more axes in front, and repeated along axes of extent 1."""

    shape: Shape
    kind = "expand"

    def infer(self, x: Shape) -> Shape:
        if not fits(x, self.shape):
            raise ShapeError(f"{x} cannot be broadcast to {self.shape}: extents must be equal, or 1")
        return self.shape


def affine(x: Tensor, scale: float = 1.0, shift: float = 0.0, *, name: str | None = None) -> Tensor:
    """scale x + shift, of any shape; returns x itself for scale 1 and shift 0."""
    if (scale, shift) == (1.0, 0.0) and name is None:
        return cast(x)
    return Affine(float(scale), float(shift))(*floats(x), name=name)


def power(x: Tensor, exponent: float, *, name: str | None = None) -> Tensor:
    """x^exponent, of any shape; `x**2` as well."""
    if isinstance(exponent, Tensor):
        raise ShapeError(f"power of {x.name}: the exponent must be a number; x**y is mb.exp(y * mb.log(x))")
    return Power(float(exponent))(*floats(x), name=name)


def expand(x: Tensor, shape: Shape, *, name: str | None = None) -> Tensor:
    """x broadcast to `shape`: more axes in front, axes of extent 1 repeated."""
    return x if x.shape == tuple(shape) else Expand(tuple(shape))(x, name=name)


def broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, broadcast to their common shape. Raises ShapeError where there is none."""
    try:
        shape = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
    except ValueError:
        raise ShapeError(
            f"{' and '.join(f'{tensor.name} {tensor.shape}' for tensor in tensors)}: cannot be broadcast to one shape"
        ) from None
    return tuple(expand(tensor, shape) for tensor in tensors)


def divide(x: Tensor, y: Tensor, *, name: str | None = None) -> Tensor:
    """x / y, of tensors that are broadcast to one shape."""
    return Divide()(*floats(*broadcast(x, y)), name=name)


def plus(x: Tensor, y: Operand, times: float = 1.0) -> Tensor:
    if isinstance(y, Tensor):
        return Add((1.0, times))(*floats(*broadcast(x, y)))
    return affine(x, 1.0, times * y)


def minus(x: Tensor, y: Operand) -> Tensor:
    return plus(x, y, -1.0)


def times(x: Tensor, y: Operand) -> Tensor:
    if isinstance(y, Tensor):
        return Multiply(2)(*floats(*broadcast(x, y)))
    return affine(x, y)


def over(x: Tensor, y: Operand) -> Tensor:
    if isinstance(y, Tensor):
        return divide(x, y)
    if y == 0:
        raise ShapeError(f"{x.name} / 0: the number must not be 0")
    exact = frexp(y)[0] in (0.5, -0.5)  # a power of two, whose reciprocal is no other number
    return affine(x, 1.0 / y) if exact else DivideBy(float(y))(*floats(x))


def from_number(x: Tensor, y: float) -> Tensor:
    """y - x."""
    return affine(x, -1.0, y)


def number_over(x: Tensor, y: float) -> Tensor:
    """y / x."""
    return times(power(x, -1.0), y)


# The formulas of powers, and Expand's reference kernels.


def power_value(x: Element, *, exponent: float) -> Element:
    return f.power(x, exponent)


def power_gradient(x: Element, dy: Element, *, exponent: float) -> Element:
    return exponent * f.power(x, exponent - 1) * dy


def square_value(x: Element) -> Element:
    return x * x


def square_gradient(x: Element, dy: Element) -> Element:
    return 2 * x * dy


def cube_value(x: Element) -> Element:
    return x * x * x


def cube_gradient(x: Element, dy: Element) -> Element:
    return 3 * x * x * dy


def reciprocal_value(x: Element) -> Element:
    return 1 / x


def reciprocal_gradient(x: Element, dy: Element) -> Element:
    return -dy / (x * x)


def root_value(x: Element) -> Element:
    return f.sqrt(x)


def root_gradient(x: Element, dy: Element) -> Element:
    return 0.5 * dy / f.sqrt(x)


# Exponents that take no logarithm.
POWERS = {
    2.0: (square_value, square_gradient),
    3.0: (cube_value, cube_gradient),
    -1.0: (reciprocal_value, reciprocal_gradient),
    0.5: (root_value, root_gradient),
}


def repeated(x: Array, shape: Shape) -> tuple[Array, tuple[int, ...]]:
    """x with as many axes as `shape`, and the axes that are repeated to broadcast it to `shape`."""
    whole = x.reshape((1,) * (len(shape) - x.ndim) + x.shape)
    return whole, tuple(i for i, extent in enumerate(whole.shape) if extent != shape[i])


@binds
def expand_backward(dy: Array, dx: Array) -> Run:
    whole, axes = repeated(dx, dy.shape)
    return lambda: np.sum(dy, axis=axes, keepdims=True, out=whole)


KERNELS = {Expand: Kernel(runs(lambda x, y: np.copyto(y, x)), expand_backward)}
