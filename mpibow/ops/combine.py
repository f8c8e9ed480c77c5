"""Sum, product and maximum of several tensors, element by element."""

from collections.abc import Sequence
from math import isfinite

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, OUTPUT, Binding, Buffers, Call, InputNumbers, Kernel, Op, Run, Shape, Shapes, Tensor
from mpibow.graph.steps import Sum

__all__ = ["Add", "Maximum", "Multiply", "add", "maximum", "multiply"]


def one_shape(shapes: tuple[Shape, ...], inputs: int) -> Shape:
    """The shape of all of an operator's `inputs`. Raises ShapeError where they differ."""
    if inputs < 2 or len(shapes) != inputs:
        raise ShapeError(
            f"there must be {inputs} inputs, as many as the operator has, and at least 2, got {len(shapes)}"
        )
    if any(shape != shapes[0] for shape in shapes):
        raise ShapeError("all inputs must have one shape")
    return shapes[0]


class Add(Op):
    """y = sum over i of coefficients[i] x_i."""

    coefficients: tuple[float, ...]
    kind = "add"

    @property
    def differentiable(self) -> InputNumbers:
        return tuple(range(len(self.coefficients)))

    def shares(self, i: int) -> int | None:
        return OUTPUT if self.coefficients[i] == 1.0 else None

    def infer(self, *shapes: Shape) -> Shape:
        if len(self.coefficients) != len(shapes) or not all(map(isfinite, self.coefficients)):
            raise ShapeError(f"coefficients must be one finite number an input, got {self.coefficients}")
        return one_shape(shapes, len(shapes))


class OfSeveral(Op):
    """An operator of `inputs` tensors of one shape, element by element."""

    inputs: int

    @property
    def differentiable(self) -> InputNumbers:
        return tuple(range(self.inputs))

    def infer(self, *shapes: Shape) -> Shape:
        return one_shape(shapes, self.inputs)


class Multiply(OfSeveral):
    """y = the product of all x_i."""

    kind = "multiply"
    reads = "x"


class Maximum(OfSeveral):
    """y = the largest of all x_i; its gradient goes to the first of equals."""

    kind = "maximum"


def add(
    x: Tensor, y: Tensor, *others: Tensor, coefficients: Sequence[float] | None = None, name: str | None = None
) -> Tensor:
    """The sum of two or more tensors of one shape, each times its coefficient (1 unless given)."""
    inputs = (x, y, *others)
    return Add((1.0,) * len(inputs) if coefficients is None else tuple(coefficients))(*inputs, name=name)


def multiply(x: Tensor, y: Tensor, *others: Tensor, name: str | None = None) -> Tensor:
    """The product, element by element, of two or more tensors of one shape."""
    return Multiply(2 + len(others))(x, y, *others, name=name)


def maximum(x: Tensor, y: Tensor, *others: Tensor, name: str | None = None) -> Tensor:
    """The largest, element by element, of two or more tensors of one shape."""
    return Maximum(2 + len(others))(x, y, *others, name=name)


# The reference kernels.


def _folded(function: np.ufunc) -> Binding:
    """y <- the function of all inputs, one after the other."""

    def bind(call: Call) -> Run:
        y = call.y
        first, second, *rest = call.x

        def run() -> None:
            function(first, second, out=y)
            for x in rest:
                function(y, x, out=y)

        return run

    return bind


def add_forward(call: Call) -> Run:
    y = call.y
    (c0, x0), *others = zip(call.op.coefficients, call.x, strict=True)

    def run() -> None:
        nonlocal y
        np.multiply(x0, c0, out=y)
        for c, x in others:
            y += np.multiply(x, c, out=call.scratch["part"])

    return run


def add_backward(call: Call) -> Run:
    def run() -> None:
        for c, dx in zip(call.op.coefficients, call.dx, strict=True):
            if dx is not None:
                np.multiply(call.dy, c, out=dx)

    return run


def multiply_backward(call: Call) -> Run:
    dy = call.dy
    others = [(dx, [*call.x[:i], *call.x[i + 1 :]]) for i, dx in enumerate(call.dx) if dx is not None]

    def run() -> None:  # without dividing y by x: x may be 0
        for dx, (first, *rest) in others:
            np.multiply(dy, first, out=dx)
            for x in rest:
                dx *= x

    return run


def maximum_buffers(op: Maximum, shapes: Shapes) -> Buffers:
    mask = {"mask": (shapes.y, "bool")}
    return Buffers(saved={"winner": (shapes.y, "uint16")}, forward=mask, backward=mask)


def maximum_forward(call: Call) -> Run:
    y = call.y
    first, *rest = call.x
    winner, mask = call.buffers("winner", "mask")

    def run() -> None:
        np.copyto(y, first)
        winner.fill(0)
        for i, x in enumerate(rest, 1):
            np.greater(x, y, out=mask)
            np.copyto(winner, i, where=mask)
            np.maximum(y, x, out=y)  # unlike a masked copy, it lets NaN through

    return run


def maximum_backward(call: Call) -> Run:
    dy = call.dy
    winner = call.saved["winner"]
    mask = call.scratch["mask"]

    def run() -> None:
        for i, dx in enumerate(call.dx):
            if dx is not None:
                np.equal(winner, i, out=mask)
                dx.fill(0)  # an infinite slope times 0 is not 0
                np.copyto(dx, dy, where=mask)

    return run


KERNELS = {
    Add: Kernel(add_forward, add_backward, lambda op, shapes: Buffers(forward={"part": (shapes.y, FLOAT)})),
    Maximum: Kernel(maximum_forward, maximum_backward, maximum_buffers),
    Multiply: Kernel(_folded(np.multiply), multiply_backward),
    Sum: Kernel(_folded(np.add)),
}
