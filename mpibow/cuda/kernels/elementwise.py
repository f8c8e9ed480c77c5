"""Launches of functions of one or more arrays element by element, in the layout that is given."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from mpibow.cuda.kernels.kernels import Launch, instance, kind, lanes, turns
from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Formats, Shapes
from mpibow.ops import ClippedRelu, Gelu, LeakyRelu


def as_given(op: Any, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    """Everything in the layout of the first input."""
    return Formats(given[:1] * len(given), given[0])


def _launch(kernel: str, *arguments: Any, of: tuple[str, ...] = ()) -> Launch:
    """The launch of a kernel made for the first argument's type; it takes all arguments and their length."""
    x = arguments[0]
    return Launch(instance(kernel, *of, kind(x)), turns(x.size, lanes(x.dtype)), (*arguments, np.int64(x.size)))


def _functor(op: Any, dtype: Any) -> tuple[str, float]:
    """An operator's name there, and its setting. A ceiling is rounded to `dtype`, so that y can equal it."""
    match op:
        case LeakyRelu(slope):
            return "LeakyRelu", float(slope)
        case ClippedRelu(ceiling):
            return "ClippedRelu", float(dtype.type(ceiling))
        case Gelu(tanh=True):
            return "TanhGelu", 0.0
    return type(op).__name__, 0.0


def unary_forward(call: Call) -> list[Launch]:
    name, setting = _functor(call.op, call.y.dtype)
    return [_launch("unary", call.x[0], call.y, setting, of=(name,))]


def unary_backward(call: Call) -> list[Launch]:
    name, setting = _functor(call.op, call.y.dtype)
    read = call.x[0] if "x" in call.op.reads else call.y
    return [_launch("unary_back", call.dy, read, call.dx[0], setting, of=(name,))]


def linear(terms: list[tuple[float, Array]], y: Array, least: float = -inf) -> list[Launch]:
    """y <- the sum of coefficient times array, two of them or more, no less than `least`: four at a time, in order."""
    launches = []
    while terms:
        now, terms = terms[:4], terms[4:]
        floor = -inf if terms else least
        coefficients, arrays = zip(*now, *[(0.0, None)] * (4 - len(now)), strict=True)
        launches.append(_launch("linear", *arrays, y, *map(float, coefficients), floor))
        terms = [(1.0, y), *terms] if terms else []
    return launches


def sum_forward(call: Call) -> list[Launch]:
    return linear([(1.0, x) for x in call.x], call.y)


def add_forward(call: Call) -> list[Launch]:
    return linear(list(zip(call.op.coefficients, call.x, strict=True)), call.y)


def add_backward(call: Call) -> list[Launch]:
    pairs = zip(call.op.coefficients, call.dx, strict=True)
    return [_launch("unary", call.dy, dx, float(c), of=("Scale",)) for c, dx in pairs if dx is not None]


def add_relu_forward(call: Call) -> list[Launch]:
    return linear([(1.0, x) for x in call.x], call.y, least=0.0)


def add_relu_backward(call: Call) -> list[Launch]:
    different = {id(dx): dx for dx in call.dx if dx is not None}.values()  # both may be one array
    return [_launch("unary_back", call.dy, call.y, dx, 0.0, of=("Relu",)) for dx in different]


def _products(factors: list[Array], y: Array) -> list[Launch]:
    """y <- the product of all factors."""
    lefts = [factors[0], *[y] * (len(factors) - 2)]
    return [_launch("product", left, right, y) for left, right in zip(lefts, factors[1:], strict=True)]


def multiply_forward(call: Call) -> list[Launch]:
    return _products(list(call.x), call.y)


def multiply_backward(call: Call) -> list[Launch]:
    launches = []
    for i, dx in enumerate(call.dx):
        if dx is not None:  # without dividing y by x: x may be 0
            launches += _products([call.dy, *call.x[:i], *call.x[i + 1 :]], dx)
    return launches


def maximum_buffers(op: Any, shapes: Shapes) -> Buffers:
    return Buffers(saved={"winner": (shapes.y, "uint16")}) if shapes.training else Buffers()


def maximum_forward(call: Call) -> list[Launch]:
    y, winner = call.y, call.saved.get("winner")
    lefts = [call.x[0], *[y] * (len(call.x) - 2)]
    return [
        _launch("larger", left, right, y, winner, i, i == 1)
        for i, (left, right) in enumerate(zip(lefts, call.x[1:], strict=True), 1)
    ]


def maximum_backward(call: Call) -> list[Launch]:
    winner = call.saved["winner"]
    return [_launch("larger_back", call.dy, winner, dx, i) for i, dx in enumerate(call.dx) if dx is not None]


def cast(x: Array, y: Any, factor: Any = None) -> Launch:
    """y <- x in y's type, times factor (1,) float32 where there is one: a loss scale's inverse, say."""
    kernel = instance("cast", kind(x), kind(y))
    return Launch(kernel, turns(x.size, lanes(x.dtype, y.dtype)), (x, y, factor, np.int64(x.size)))


def convert_forward(call: Call) -> list[Launch]:
    return [cast(call.x[0], call.y)]


def convert_backward(call: Call) -> list[Launch]:
    return [cast(call.dy, call.dx[0])]


def fill(y: Array, value: float, factor: Any = None) -> Launch:
    """y <- value, times factor (1,) float32 where there is one."""
    return _launch("fill", y, float(value), factor)
