"""ONNX's operators by name, each with the function that adds it to a graph: arithmetic and shapes; layers beside it."""

from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np

from mpibow import ops
from mpibow.aten.site import ModuleArray, Value, dtype_of, need
from mpibow.graph import FLOAT, Tensor
from mpibow.onnx import layer_translations
from mpibow.ops.integers import FROM_START, integer

from .nodes import NodeSite, Setting, Translation, constant, integers, single

EXTENTS = ("Shape", "Size")  # read the shape of their input alone
NARROW = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 10: "float16", 16: "bfloat16"}  # by onnx.TensorProto.DataType
PADDING = {"edge": "replicate", "wrap": "circular"}  # modes that ATen has under other names


def unary(operator: str, **names: str) -> Translation:
    """ATen's operator of one tensor; `names` are those of ONNX's attributes there, whose defaults are alike."""
    return lambda site, x, **settings: site.aten(
        operator, self=x, **{names.get(key, key): n for key, n in settings.items()}
    )


def several(operator: str) -> Callable[..., Value]:
    """ATen's operator of two as one of any number."""
    return lambda site, *x: reduce(lambda one, other: site.aten(operator, self=one, other=other), x)


def reduced(operator: str) -> Translation:
    def translate(
        site: NodeSite, x: Value, axes: Setting | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        dim = integers(axes)
        if not dim and noop_with_empty_axes:
            return site.floats(x)
        return site.aten(operator, self=x, dim=dim or None, keepdim=bool(keepdims))

    return translate


def prelu(site: NodeSite, x: Value, slope: Value) -> Tensor:
    y = site.floats(x)
    return ops.where(ops.gt(y, 0.0), y, y * site.floats(slope))


def power(site: NodeSite, x: Value, exponent: Value) -> Tensor:
    y = site.aten("pow", self=x, exponent=single(exponent, "the exponent"))
    return ops.expand(y, np.broadcast_shapes(y.shape, exponent.shape))


def clip(site: NodeSite, x: Value, *limits: Value | None) -> Tensor:
    bounds = (each.array if isinstance(each, ModuleArray) else each for each in limits)
    return site.aten("clamp", self=x, **dict(zip(("min", "max"), bounds, strict=False)))


def divide(site: NodeSite, x: Value, y: Value) -> Tensor:
    need(site.node.types[0] == FLOAT, "quotients of integers are not rounded here")
    return site.aten("div", self=x, other=y)


def viewed(site: NodeSite, x: Value, *settings: Value | None, **_: object) -> Tensor:
    """The same elements in the same order: Flatten, Squeeze, Unsqueeze."""
    return ops.reshape(site.tensor(x), site.shapes(x, *settings)[0])


def reshape(site: NodeSite, x: Value, wanted: Value, **_: object) -> Tensor:
    shape = constant(wanted).copy()
    if site.fixed and shape[:1] == site.fixed and x.shape[:1] == (site.batch,):
        shape[0] = site.batch
    return viewed(site, x, shape)


def sliced(site: NodeSite, x: Value, *settings: Setting | None) -> Tensor:
    starts, ends, axes, steps = map(integers, (*settings, None, None)[:4])
    y = site.tensor(x)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = axes[i] if axes else i
        step = steps[i] if steps else 1
        along = range(y.shape[axis])[start:end:step]
        need(len(along) > 0, f"the slice of axis {axis} is empty")
        y = site.aten("slice", self=y, dim=axis, start=min(along), end=max(along) + 1, step=abs(step))
        y = ops.flip(y, axis) if step < 0 else y
    return y


def gather(site: NodeSite, x: Value, index: Value, *, axis: int = 0) -> Tensor:
    at = axis % len(x.shape)
    if isinstance(index, np.ndarray) and not index.shape:
        return site.aten("select", self=x, dim=at, index=int(index))
    if isinstance(x, ModuleArray) and isinstance(index, Tensor) and at == 0 and len(x.shape) == 2:
        return site.aten("embedding", weight=x, indices=_from_start(site, index, x.shape[0]))
    return site.aten("index", self=x, indices=[None] * at + [index])


def _from_start(site: NodeSite, index: Value, extent: int) -> Value:
    """Indices below 0 count from the end."""
    if isinstance(index, np.ndarray):
        return index % extent
    return integer(site.tensor(index), FROM_START, ops.constant(extent))


def pad(
    site: NodeSite,
    x: Value,
    pads: Setting,
    value: Setting | None = None,
    axes: Setting | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    rank = len(x.shape)
    sides = integers(pads)
    places = integers(axes) or [*range(rank)]
    ends = {axis % rank: sides[i :: len(places)] for i, axis in enumerate(places)}
    reverse = [n for axis in reversed(range(rank)) for n in ends.get(axis, (0, 0))]
    number = 0.0 if value is None else single(value, "the constant of a padding")
    return site.aten("pad", self=x, pad=reverse, mode=PADDING.get(mode, mode), value=number)


def cast(site: NodeSite, x: Value, *, to: int, **_: object) -> Tensor:
    need(to not in NARROW or dtype_of(x) == "bool", f"casts to {NARROW.get(to)}; types of a net are 32 bits wide")
    return ops.cast(site.tensor(x), site.node.types[0])


# ONNX's operators that are ATen's: of one tensor, by their name in small letters; of two or more; over axes.
UNARY = (
    "Abs",
    "Ceil",
    "Cos",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSwish",
    "IsNaN",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softplus",
    "Sqrt",
    "Tanh",
)
SEVERAL = {
    "Add": "add",
    "And": "logical_and",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "MatMul": "matmul",
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
    **layer_translations.TRANSLATIONS,
    **{name: unary(name.lower()) for name in UNARY},
    **{name: several(operator) for name, operator in SEVERAL.items()},
    **{name: reduced(operator) for name, operator in REDUCED.items()},
    **dict.fromkeys(EXTENTS, lambda site, x, **_: site.node.fold(np.empty(x.shape, bool))[0]),
    **dict.fromkeys(("Flatten", "Squeeze", "Unsqueeze"), viewed),
    "Cast": cast,
    "Clip": clip,
    "Concat": lambda site, *x, axis: site.aten("cat", tensors=[*x], dim=axis),
    "Div": divide,
    "Expand": lambda site, x, shape: ops.expand(site.tensor(x), np.broadcast_shapes(x.shape, tuple(integers(shape)))),
    "Gather": gather,
    "GatherElements": lambda site, x, index, axis=0: site.aten(
        "gather", self=x, dim=axis, index=_from_start(site, index, x.shape[axis])
    ),
    "Identity": lambda site, x: x,
    "LeakyRelu": unary("leaky_relu", alpha="negative_slope"),
    "LogSoftmax": unary("log_softmax", axis="dim"),
    "Mean": lambda site, *x: site.floats(several("add")(site, *x)) / len(x),
    "Not": unary("logical_not"),
    "PRelu": prelu,
    "Selu": lambda site, x, alpha=1.6732632423543772, gamma=1.0507009873554805: site.aten(
        "elu", self=x, alpha=alpha, scale=gamma
    ),
    "Pad": pad,
    "Pow": power,
    "Reshape": reshape,
    "Slice": sliced,
    "Softmax": unary("softmax", axis="dim"),
    "Split": lambda site, x, *sizes, axis=0, **_: ops.split(
        site.tensor(x), [shape[axis] for shape in site.shapes(x, *sizes)], axis
    ),
    "Tile": lambda site, x, repeats: site.aten("repeat", self=x, repeats=integers(repeats)),
    "Transpose": lambda site, x, perm=None: ops.permute(site.tensor(x), *(perm or reversed(range(len(x.shape))))),
    "Where": lambda site, c, x, y: site.aten("where", condition=c, self=x, other=y),
}
