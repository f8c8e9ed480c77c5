"""Launches of functions of one or more arrays element by element, in the layout that is given, and of dropout.

Of every four elements dropout keeps 4 bits for backward. With several replicas side by side, a sample of each is a
sample here, with counters (4,) and kept bits of its own.
"""

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np

from mpibow.cuda.device.array import PlanArray
from mpibow.graph import Array, Buffers, Call, Formats, Op, Shapes, Tags
from mpibow.graph.formats import canonical
from mpibow.ops import ClippedRelu, Gelu, LeakyRelu
from mpibow.ops.philox import stream

from .kernels import Launch, Launches, instance, kind, lanes, launch, turns


def _launch(kernel: str, *arguments: PlanArray, of: tuple[str, ...] = ()) -> Launch:
    """The launch of a kernel made for the first argument's type; it takes all arguments and their length."""
    x = arguments[0]
    return Launch(instance(kernel, *of, kind(x)), turns(x.size, lanes(x.dtype)), (*arguments, np.int64(x.size)))


def _functor(op: Op, dtype: np.dtype[Any]) -> tuple[str, float]:
    """An operator's name there, and its setting. A ceiling is rounded to `dtype`, so that y can equal it."""
    match op:
        case LeakyRelu(slope):
            return "LeakyRelu", float(slope)
        case ClippedRelu(ceiling):
            return "ClippedRelu", float(dtype.type(ceiling))
        case Gelu(tanh=True):
            return "TanhGelu", 0.0
    return type(op).__name__, 0.0


def unary_forward(call: Call) -> Launches:
    name, setting = _functor(call.op, call.y.dtype)
    return [_launch("unary", call.x0, call.y, setting, of=(name,))]


def unary_backward(call: Call) -> Launches:
    name, setting = _functor(call.op, call.y.dtype)
    read = call.x0 if "x" in call.op.reads else call.y
    return [_launch("unary_back", call.dy, read, call.dx0, setting, of=(name,))]


def linear(terms: list[tuple[float, Array]], y: Array, least: float = -inf) -> Launches:
    """y <- the sum of coefficient times array, two of them or more, no less than `least`: four at a time, in order."""
    launches = []
    while terms:
        now, terms = terms[:4], terms[4:]
        floor = -inf if terms else least
        coefficients, arrays = zip(*now, *[(0.0, None)] * (4 - len(now)), strict=True)
        launches.append(_launch("linear", *arrays, y, *map(float, coefficients), floor))
        terms = [(1.0, y), *terms] if terms else []
    return launches


def sum_forward(call: Call, least: float = -inf) -> Launches:
    return linear([(1.0, x) for x in call.x], call.y, least)


def add_forward(call: Call) -> Launches:
    return linear(list(zip(call.op.coefficients, call.x, strict=True)), call.y)


def add_backward(call: Call) -> Launches:
    pairs = zip(call.op.coefficients, call.dx, strict=True)
    return [_launch("unary", call.dy, dx, float(c), of=("Scale",)) for c, dx in pairs if dx is not None]


def add_relu_backward(call: Call) -> Launches:
    different = {id(dx): dx for dx in call.dx if dx is not None}.values()  # both may be one array
    return [_launch("unary_back", call.dy, call.y, dx, 0.0, of=("Relu",)) for dx in different]


def _pairs(arrays: Sequence[Array], y: Array) -> list[tuple[Array, Array]]:
    """What is combined in y, step by step: the first two arrays, then y and each of the others."""
    return [(y if i else arrays[0], array) for i, array in enumerate(arrays[1:])]


def _products(factors: Sequence[Array], y: Array) -> Launches:
    """y <- the product of all factors."""
    return [_launch("product", left, right, y) for left, right in _pairs(factors, y)]


def multiply_forward(call: Call) -> Launches:
    return _products(call.x, call.y)


def multiply_backward(call: Call) -> Launches:
    launches = []
    for i, dx in enumerate(call.dx):
        if dx is not None:  # without dividing y by x: x may be 0
            launches += _products([call.dy, *call.x[:i], *call.x[i + 1 :]], dx)
    return launches


def maximum_buffers(op: Op, shapes: Shapes) -> Buffers:
    return Buffers(saved={"winner": (shapes.y, "uint16")}) if shapes.training else Buffers()


def maximum_forward(call: Call) -> Launches:
    y, winner = call.y, call.saved.get("winner")
    return [_launch("larger", *pair, y, winner, i, i == 1) for i, pair in enumerate(_pairs(call.x, y), 1)]


def maximum_backward(call: Call) -> Launches:
    winner = call.saved["winner"]
    return [_launch("larger_back", call.dy, winner, dx, i) for i, dx in enumerate(call.dx) if dx is not None]


def cast(x: Array, y: PlanArray, factor: PlanArray = None) -> Launch:
    """y <- x in y's type, times factor (1,) float32 where there is one: a loss scale's inverse, say."""
    kernel = instance("cast", kind(x), kind(y))
    return Launch(kernel, turns(x.size, lanes(x.dtype, y.dtype)), (x, y, factor, np.int64(x.size)))


def fill(y: PlanArray, value: float, factor: PlanArray = None) -> Launch:
    """y <- value, times factor (1,) float32 where there is one."""
    return _launch("fill", y, float(value), factor)


def counter_formats(op: Op, shapes: Shapes, given: Tags) -> Formats:
    """As given, where that is canonical or has channels last; behind it the counters."""
    tag = given[0] if given[0] == "acdb" else canonical(shapes.y)
    return Formats((tag, "ab"), tag)


def dropout_buffers(op: Op, shapes: Shapes) -> Buffers:
    samples, features = _samples(op, shapes)
    return Buffers(saved={"kept": ((samples, -(-features // 4)), "uint8")})


def _samples(op: Op, shapes: Shapes) -> tuple[int, int]:
    """Samples of all replicas, and features of one."""
    k = getattr(op, "replicas", 1)
    return k * shapes.y[0], prod(shapes.y[1:]) // k


def _dropout_extents(call: Call) -> tuple[int, int, int, int]:
    """Samples, features, and where channels come last, how many of a replica and how many replicas; else 1 and 1."""
    (samples, features), (n, channels, *_) = _samples(call.op, call.shapes), call.shapes.y
    k = samples // n
    last = (channels // k, k) if call.shapes.formats.y == "acdb" else (1, 1)
    return samples, features, *last


def _dropped(call: Call, kernel: str, x: Array, *arguments: PlanArray) -> Launches:
    kept, scale = call.saved["kept"], float(1.0 / (1.0 - call.op.rate))
    return launch(kernel, turns(kept.size), x, *arguments, scale, *_dropout_extents(call), of=(kind(x),))


def dropout_forward(call: Call) -> Launches:
    node = np.uint32(stream(call.name))
    threshold = np.uint32(round(call.op.rate * 2**32))
    return _dropped(call, "dropout", *call.x, call.y, call.saved["kept"], node, threshold)


def dropout_backward(call: Call) -> Launches:
    return _dropped(call, "dropout_back", call.dy, call.saved["kept"], call.dx0)
