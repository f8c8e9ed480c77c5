"""ONNX's operators by name, each with the function that adds it to a graph: arithmetic here, the others beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np

from mpibow import ops
from mpibow.aten.site import ModuleArray, Value, need
from mpibow.graph.graph import FLOAT, Tensor
from mpibow.onnx import layer_translations, shape_translations
from mpibow.onnx.nodes import NodeSite, Translation, single

EXTENTS = ("Shape", "Size")  # read the shape of their input alone


def unary(operator: str) -> Translation:
    return lambda site, x: site.aten(operator, self=x)


def several(operator: str) -> Callable[..., Value]:
    """ATen's operator of two as one of any number."""
    return lambda site, *x: reduce(lambda one, other: site.aten(operator, self=one, other=other), x)


def reduced(operator: str) -> Callable[..., Tensor]:
    def translate(site: NodeSite, x: Value, axes: Value | None = None) -> Tensor:
        given = site.listed("axes", axes)
        if not x.shape or (not given and site.get("noop_with_empty_axes", 0)):
            return site.floats(x)
        every = given or list(range(len(x.shape)))
        return site.aten(operator, self=x, dim=every, keepdim=bool(site.get("keepdims", 1)))

    return translate


def prelu(site: NodeSite, x: Value, slope: Value) -> Tensor:
    y = site.floats(x)
    return ops.where(ops.gt(y, 0.0), y, y * site.floats(slope))


def power(site: NodeSite, x: Value, exponent: Value) -> Tensor:
    y = site.aten("pow", self=x, exponent=single(exponent, "the exponent"))
    return ops.expand(y, np.broadcast_shapes(y.shape, exponent.shape))


def clip(site: NodeSite, x: Value, low: Value | None = None, high: Value | None = None) -> Tensor:
    low, high = (each.array if isinstance(each, ModuleArray) else each for each in (low, high))
    return site.aten("clamp", self=x, min=low, max=high)


def divide(site: NodeSite, x: Value, y: Value) -> Tensor:
    need(site.node.types[0] == FLOAT, "quotients of integers are not rounded here")
    return site.aten("div", self=x, other=y)


# ONNX's operators that are ATen's: of one tensor, by their name in small letters; of two or more; over axes.
UNARY = (
    *("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "IsNaN", "Log", "Mish", "Neg", "Reciprocal", "Relu"),
    *("Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Tanh"),
)
SEVERAL = {
    "Add": "add",
    "And": "logical_and",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Max": "maximum",
    "Min": "minimum",
    "Mul": "mul",
    "Or": "logical_or",
    "Sub": "sub",
    "Sum": "add",
    "Xor": "logical_xor",
}
REDUCED = {
    "ReduceMax": "amax",
    "ReduceMean": "mean",
    "ReduceMin": "amin",
    "ReduceSum": "sum",
    "ReduceL2": "linalg_vector_norm",
    "ReduceLogSumExp": "logsumexp",
}

TRANSLATIONS: Mapping[str, Translation] = {
    **shape_translations.TRANSLATIONS,
    **layer_translations.TRANSLATIONS,
    **{name: unary(name.lower()) for name in UNARY},
    **{name: several(operator) for name, operator in SEVERAL.items()},
    **{name: reduced(operator) for name, operator in REDUCED.items()},
    "Clip": clip,
    "Div": divide,
    "Elu": lambda site, x: site.aten("elu", self=x, alpha=site.get("alpha", 1.0)),
    "Gelu": lambda site, x: site.aten("gelu", self=x, approximate=site.get("approximate", "none")),
    "LeakyRelu": lambda site, x: site.aten("leaky_relu", self=x, negative_slope=site.get("alpha", 0.01)),
    "LogSoftmax": lambda site, x: ops.log_softmax(site.floats(x), site.get("axis", -1)),
    "MatMul": lambda site, x, y: ops.matmul(site.floats(x), site.floats(y)),
    "Mean": lambda site, *x: site.floats(several("add")(site, *x)) * (1 / len(x)),
    "Not": unary("logical_not"),
    "PRelu": prelu,
    "Pow": power,
    "Softmax": lambda site, x: ops.softmax(site.floats(x), site.get("axis", -1)),
}
