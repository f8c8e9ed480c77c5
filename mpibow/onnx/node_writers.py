"""mpibow's operators in evaluation as nodes of ONNX: a table of records; formulas of one element are walked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten.site import need
from mpibow.formulas.formula import Apply, Expression, Name, Number
from mpibow.graph.graph import FLOAT, Array
from mpibow.onnx.layer_translations import GATES
from mpibow.onnx.writer import Input, NodeWriter
from mpibow.ops.applied import OF
from mpibow.ops.rotary import angles
from mpibow.ops.upsample import weights

Written = str | list[str]
LAST = np.iinfo(np.int64).max  # the end of an axis, however long
LOWEST = float(np.finfo(np.float32).min)

# The functions of formulas that ONNX has under other names than theirs.
FUNCTIONS = {
    "+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "<": "Less", "<=": "LessOrEqual", ">": "Greater",
    ">=": "GreaterOrEqual", "==": "Equal", "maximum": "Max", "minimum": "Min", "negative": "Neg", "power": "Pow",
}  # fmt: skip


def by_formula(w: NodeWriter) -> str:
    """The operator's formula, one node a function; integers alone are computed in float64, as they are exact there."""
    used = w.op.half(False)
    wide = FLOAT not in w.dtypes
    number = np.float64 if wide else np.float32
    kind = "float64" if wide else FLOAT
    x = [name if dtype == FLOAT else w.cast(name, kind) for name, dtype in zip(w.x, w.dtypes, strict=True)]
    values: dict[str, Input] = {"x": x[0], **{f"x{i}": each for i, each in enumerate(x)}}
    values |= {name: np.array(getattr(w.op, name), number) for name in used.scalars}

    def value(tree: Expression) -> Input:
        match tree:
            case Number(literal):
                return np.array(literal, number)
            case Name(name):
                return values[name]
            case Apply("!=", arguments):
                return w.add("Not", w.add("Equal", *map(value, arguments)))
            case Apply("log1p", (argument,)):
                return w.add("Log", w.add("Add", value(argument), np.array(1, number)))
            case Apply(function, arguments):
                return w.add(FUNCTIONS.get(function, function.capitalize()), *map(value, arguments))

    for name, tree in used.assignments:
        values[name] = value(tree)
    result = value(used.results[0])
    assert isinstance(result, str)
    made = w.model.two.tensors[w.node.name].dtype
    return result if made == kind else w.cast(result, made)


def direct(operator: str, *settings: str) -> Callable[[NodeWriter], str]:
    """One node with the operator's inputs, and its `settings` by name."""
    return lambda w: w.add(operator, *w.x, **{name: getattr(w.op, name) for name in settings})


def viewed(w: NodeWriter) -> str:
    return w.add("Reshape", *w.x, w.extents(reshaped=True))


def arange(w: NodeWriter) -> str:
    return w.cast(w.add("Range", np.array(0), w.add("Squeeze", w.extents()), np.array(1)), "int32")


def table(w: NodeWriter) -> str:
    dtype = np.float32 if w.same().type == FLOAT else w.op.type
    array = np.array(w.op.values, dtype).reshape(w.op.shape)
    return w.cast(w.add("Identity", array), w.op.type)


def added(w: NodeWriter) -> str:
    parts = [x if by == 1 else w.add("Mul", x, by) for x, by in zip(w.x, w.op.coefficients, strict=True)]
    return w.add("Add", *parts) if len(parts) == 2 else w.add("Sum", *parts)


def sliced(w: NodeWriter) -> str:
    parts = [
        (axis, start, LAST if stop == extent else stop, step)
        for axis, ((start, stop, step), extent) in enumerate(zip(w.op.ranges, w.shapes[0], strict=True))
        if (start, stop, step) != (0, extent, 1)
    ]
    axes, starts, stops, steps = np.array(parts, np.int64).T
    bounds = [each[0] for each in w.twin.ranges]
    need(bounds == [each[0] for each in w.op.ranges], "slice: it starts at a place that depends on the batch size")
    return w.add("Slice", *w.x, starts, stops, axes, steps)


def flipped(w: NodeWriter) -> str:
    axes = np.array(w.op.axes)
    return w.add("Slice", *w.x, np.full(len(axes), -1), np.full(len(axes), -LAST), axes, np.full(len(axes), -1))


def split(w: NodeWriter) -> list[str]:
    sizes = w.same().sizes
    return w.model.add("Split", *w.x, np.array(sizes), axis=w.op.axis, count=len(sizes))


def reduced(w: NodeWriter) -> str:
    return w.add(type(w.op).__name__, *w.x, np.array(w.op.axes))


def gathered(w: NodeWriter) -> str:
    index = w.add("Clip", w.cast(w.x[1], "int64"), np.array(0), np.array(w.shapes[0][w.op.axis] - 1))
    return w.add("GatherElements", w.x[0], index, axis=w.op.axis)


def embedded(w: NodeWriter) -> str:
    index = w.add("Clip", w.cast(w.x[0], "int64"), np.array(0), np.array(w.op.count - 1))
    return w.add("Gather", w.weight("weight"), index)


def convolution(w: NodeWriter) -> str:
    op, keys = w.op, ("weight", "bias") if w.op.bias else ("weight",)
    settings = {"kernel_shape": op.kernel, "strides": op.stride, "pads": op.padding * 2, "dilations": op.dilation}
    if isinstance(op, ops.ConvTranspose2d):
        return w.add(
            "ConvTranspose", *w.x, *map(w.weight, keys), group=op.groups, output_padding=op.output_padding, **settings
        )
    return w.add("Conv", *w.x, *map(w.weight, keys), group=op.groups, **settings)


def dense(w: NodeWriter) -> str:
    if len(w.shapes[0]) == 2:
        return w.add("Gemm", *w.x, *map(w.weight, w.node.weights), transB=1)
    y = w.add("MatMul", *w.x, w.add("Transpose", w.weight("weight"), perm=(1, 0)))
    return w.add("Add", y, w.weight("bias")) if w.op.bias else y


def pool(w: NodeWriter) -> str:
    """Windows that hang over the end have more padding there; it is never counted."""
    op, x, (rows, columns) = w.op, w.x[0], w.model.two.tensors[w.node.name].shape[2:]
    over = [
        max(0, (count - 1) * step + window - extent - 2 * pad)
        for count, step, window, extent, pad in zip(
            (rows, columns), op.stride, op.kernel, w.shapes[0][2:], op.padding, strict=True
        )
    ]
    front, counted = op.padding, isinstance(op, ops.AvgPool2d) and op.count_padding
    if counted and any(front):
        x, front = w.add("Pad", x, np.array([0, 0, *front] * 2)), (0, 0)
    pads = [*front, *(pad + more for pad, more in zip(front, over, strict=True))]
    operator = "MaxPool" if isinstance(op, ops.MaxPool2d) else "AveragePool"
    return w.add(operator, x, kernel_shape=op.kernel, strides=op.stride, pads=pads)


def by_matrices(matrix: Callable[[Any, int, int], Array]) -> Callable[[NodeWriter], str]:
    """A product with a matrix of each side: of the operator, the axis and the extent."""

    def write(w: NodeWriter) -> str:
        rows, columns = (matrix(w.op, axis, extent).astype(np.float32) for axis, extent in enumerate(w.shapes[0][2:]))
        return w.add("MatMul", rows, w.add("MatMul", *w.x, columns.T))

    return write


def means(op: ops.AdaptiveAvgPool2d, axis: int, extent: int) -> Array:
    (first, last), size = op.along(axis, extent, op.size[axis])
    place = np.arange(extent)
    inside: Array = (place >= first[:, None]) & (place < last[:, None])
    return np.divide(inside, size[:, None])


def batch_norm(w: NodeWriter) -> str:
    held = map(w.weight, ("weight", "bias", "mean", "variance"))
    return w.add("BatchNormalization", *w.x, *held, epsilon=w.op.epsilon, momentum=1 - w.op.momentum)


def layer_norm(w: NodeWriter) -> str:
    held = map(w.weight, ("weight", "bias"))
    return w.add("LayerNormalization", *w.x, *held, axis=-w.op.axes, epsilon=w.op.epsilon)


def rms_norm(w: NodeWriter) -> str:
    (x,), axes = w.x, np.arange(-w.op.axes, 0)
    mean = w.add("ReduceMean", w.add("Mul", x, x), axes)
    return w.add("Mul", w.add("Div", x, w.add("Sqrt", w.add("Add", mean, w.op.epsilon))), w.weight("weight"))


def group_norm(w: NodeWriter) -> str:
    groups, (_, channels, *rest) = w.op.groups, w.shapes[0]
    rows = w.add("Reshape", *w.x, np.array([0, groups, -1]))
    normal = w.add(
        "InstanceNormalization", rows, np.ones(groups, np.float32), np.zeros(groups, np.float32), epsilon=w.op.epsilon
    )
    y, shape = w.add("Reshape", normal, w.extents(reshaped=True)), np.array([channels, *(1 for _ in rest)])
    weight, bias = (w.add("Reshape", w.weight(key), shape) for key in ("weight", "bias"))
    return w.add("Add", w.add("Mul", y, weight), bias)


def local_response_norm(w: NodeWriter) -> str:
    op = w.op
    need(op.size % 2 == 1, f"local_response_norm: size must be odd in ONNX, got {op.size}")
    return w.add("LRN", *w.x, size=op.size, alpha=op.alpha, beta=op.beta, bias=op.k)


def gelu(w: NodeWriter) -> str:
    (x,) = w.x
    inner = w.add("Mul", x, 0.5**0.5)
    if w.op.tanh:
        cube = w.add("Mul", w.add("Mul", w.add("Mul", x, x), x), 0.044715)
        inner = w.add("Mul", w.add("Add", x, cube), (2 / np.pi) ** 0.5)
    bell = w.add("Add", w.add("Tanh" if w.op.tanh else "Erf", inner), 1.0)
    return w.add("Mul", w.add("Mul", x, 0.5), bell)


def attention(w: NodeWriter) -> str:
    q, k, v, *mask = w.x
    rank, (rows, columns) = len(w.shapes[0]), (w.shapes[0][-2], w.shapes[1][-2])
    turned = w.add("Transpose", k, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = w.add("Mul", w.add("MatMul", q, turned), w.op.scale)
    if mask and w.dtypes[3] == FLOAT:
        scores = w.add("Max", w.add("Add", scores, *mask), LOWEST)
    elif mask:
        scores = w.add("Where", w.cast(mask[0], "bool"), scores, LOWEST)
    if w.op.causal:
        scores = w.add("Where", np.tri(rows, columns, dtype=bool), scores, LOWEST)
    weights = w.add("Softmax", scores, axis=-1)
    if mask:  # a row with all columns hidden gives 0
        weights = w.add("Where", w.add("LessOrEqual", scores, LOWEST), 0.0, weights)
    return w.add("MatMul", weights, v)


def rotary(w: NodeWriter) -> str:
    half, turns = w.shapes[0][-1] // 2, angles(w.op, w.shapes[0])
    first, second = w.model.add("Split", *w.x, np.array([half, half]), axis=-1, count=2)
    cos, sin = np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)
    y0 = w.add("Sub", w.add("Mul", first, cos), w.add("Mul", second, sin))
    y1 = w.add("Add", w.add("Mul", second, cos), w.add("Mul", first, sin))
    return w.add("Concat", y0, y1, axis=-1)


def recurrent(kind: str, w: NodeWriter) -> list[str]:
    """A layer of one direction; its weights' gates are put into ONNX's order."""
    order = np.argsort(GATES[kind])

    def ordered(*keys: str) -> str:
        gates = list[str]()
        for key in keys:
            parts = w.model.add("Split", w.weight(key), np.full(len(order), w.op.units), axis=0, count=len(order))
            gates += [parts[gate] for gate in order]
        return w.add("Unsqueeze", w.add("Concat", *gates, axis=0), np.array([0]))

    x, *states = w.x
    y, *last = w.model.add(
        kind.upper(),
        w.add("Transpose", x, perm=(1, 0, 2)),
        *(ordered("weight_ih"), ordered("weight_hh"), ordered("bias_ih", "bias_hh"), ""),
        *(w.add("Unsqueeze", state, np.array([0])) for state in states),
        count=3 if kind == "lstm" else 2,
        hidden_size=w.op.units,
        **({"linear_before_reset": 1} if kind == "gru" else {}),
    )
    steps = w.add("Transpose", w.add("Squeeze", y, np.array([1])), perm=(1, 0, 2))
    return [steps, *(w.add("Squeeze", each, np.array([0])) for each in last)]


def normalised(w: NodeWriter) -> str:
    shape = w.shapes[0][1:]
    std = np.array(w.op.std, np.float32).reshape(-1, *(1 for _ in shape[1:]))
    mean = np.array(w.op.mean, np.float32).reshape(std.shape if len(w.op.mean) == len(std) else shape)
    return w.add("Div", w.add("Sub", w.cast(w.x[0], FLOAT), mean), std)


def cropped(w: NodeWriter) -> str:
    sides = [((whole - part) // 2, part) for whole, part in zip(w.shapes[0][2:], w.op.crop, strict=True)]
    tops, ends = np.array([(top, top + part) for top, part in sides]).T
    return w.add("Slice", *w.x, tops, ends, np.array([2, 3]))


def applied(w: NodeWriter) -> Written:
    """A layer whose weights are its last inputs."""
    count, layer = w.op.count, type(w.op).__mro__[2]
    held = dict(zip(w.op.keys(*w.shapes), w.x[count:], strict=True))
    return WRITERS[layer](replace(w, node=replace(w.node, inputs=w.node.inputs[:count]), held=held))


# Of integers, and of bools.
INTEGER = {"+": "Add", "-": "Sub", "*": "Mul", "max": "Max", "min": "Min", "%": "Mod"}
LOGICAL = {"&": "And", "|": "Or", "^": "Xor"}


def integer(w: NodeWriter) -> str:
    sign, x = w.op.sign, w.x
    if sign in LOGICAL:
        return w.add(LOGICAL[sign] if w.dtypes[0] == "bool" else f"Bitwise{LOGICAL[sign]}", *x)
    if sign == "//":  # ONNX rounds to 0
        quotient = w.add("Div", *(w.cast(each, "float64") for each in x))
        return w.cast(w.add("Floor", quotient), "int32")
    return w.add(INTEGER[sign], *x)


def padded_channels(w: NodeWriter) -> str:
    _, channels, *rest = w.shapes[0]
    front = [0] * (len(rest) + 2)
    return w.add("Pad", *w.x, np.array([*front, 0, w.op.channels - channels, *front[2:]]))


WRITERS: Mapping[type, Callable[[NodeWriter], Written]] = {
    **dict.fromkeys(ops.POINTWISE, by_formula),
    **dict.fromkeys(OF, applied),
    ops.AdaptiveAvgPool2d: by_matrices(means),
    ops.Add: added,
    ops.Arange: arange,
    ops.Attention: attention,
    ops.AvgPool2d: pool,
    ops.BatchNorm: batch_norm,
    ops.CentreCrop: cropped,
    ops.ClippedRelu: lambda w: w.add("Clip", *w.x, 0.0, w.op.ceiling),
    ops.Concat: direct("Concat", "axis"),
    ops.Conv2d: convolution,
    ops.ConvTranspose2d: convolution,
    ops.Dense: dense,
    ops.Dropout: lambda w: w.x[0],
    ops.Embedding: embedded,
    ops.Erf: direct("Erf"),
    ops.Expand: lambda w: w.add("Expand", *w.x, w.extents()),
    ops.Flatten: viewed,
    ops.Flip: flipped,
    ops.Full: lambda w: w.add("Expand", float(w.op.value), w.extents()),
    ops.Gather: gathered,
    ops.Gelu: gelu,
    ops.GlobalAvgPool2d: lambda w: w.add("ReduceMean", *w.x, np.array([2, 3]), keepdims=0),
    ops.GroupNorm: group_norm,
    ops.Gru: partial(recurrent, "gru"),
    ops.IntegerOperation: integer,
    ops.LayerNorm: layer_norm,
    ops.LeakyRelu: lambda w: w.add("LeakyRelu", *w.x, alpha=w.op.slope),
    ops.LocalResponseNorm: local_response_norm,
    ops.LogSoftmax: direct("LogSoftmax", "axis"),
    ops.Lstm: partial(recurrent, "lstm"),
    ops.Matmul: direct("MatMul"),
    ops.MaxPool2d: pool,
    ops.Maximum: direct("Max"),
    ops.Multiply: lambda w: reduce(partial(w.add, "Mul"), w.x),
    ops.Normalise: normalised,
    ops.PadChannels: padded_channels,
    ops.Parameter: lambda w: w.weight("weight"),
    ops.Permute: lambda w: w.add("Transpose", *w.x, perm=w.op.axes),
    **dict.fromkeys((ops.ReduceMax, ops.ReduceMean, ops.ReduceSum), reduced),
    ops.Relu: direct("Relu"),
    ops.RmsNorm: rms_norm,
    ops.Rotary: rotary,
    ops.Sigmoid: direct("Sigmoid"),
    ops.Slice: sliced,
    ops.Softmax: direct("Softmax", "axis"),
    ops.Split: split,
    ops.Table: table,
    ops.Tanh: direct("Tanh"),
    ops.Upsample: by_matrices(lambda op, axis, extent: weights(extent, op.scale[axis], op.mode)),
    ops.View: viewed,
}
