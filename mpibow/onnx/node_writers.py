"""mpibow's operators in evaluation as nodes of ONNX: a table of records; formulas of one element are walked."""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten.site import need
from mpibow.formulas import formula
from mpibow.formulas.functions import Element, erf, tanh
from mpibow.graph import FLOAT, Array
from mpibow.ops.applied import OF
from mpibow.ops.gelu import CUBE, SCALE
from mpibow.ops.integers import FROM_START
from mpibow.ops.rotary import angles
from mpibow.ops.upsample import weights

from .layer_translations import GATES
from .writer import Input, NodeWriter, by_formula

Writer = Callable[[NodeWriter], str | list[str]]
LAST = np.iinfo(np.int64).max  # the end of an axis, however long
LOWEST = float(np.finfo(np.float32).min)
ROOT = 0.5**0.5


def node(operator: str, **settings: str) -> Writer:
    """One node: ONNX has the operator; `settings` are the names of its attributes here."""
    return lambda w: w(operator, *w.x, *w.weights, **{key: getattr(w.op, name) for key, name in settings.items()})


def viewed(w: NodeWriter) -> str:
    return w("Reshape", *w.x, w.extents(reshaped=True))


def table(w: NodeWriter) -> str:
    """Numbers; along the batch those of its first sample, which all others must have as well."""
    two, three = (np.array(op.values, op.type).reshape(op.shape) for op in (w.op, w.twin))
    first = two[tuple(slice(1 if by else None) for by in w.model.times(w.node.name))]
    need(
        all(np.array_equal(np.broadcast_to(first, each.shape), each, equal_nan=True) for each in (two, three)),
        "its numbers depend on the batch size",
    )
    return w.cast(w("Expand", first, w.extents()), w.op.type)


def added(w: NodeWriter) -> str:
    parts = [x if by == 1 else w("Mul", x, by) for x, by in zip(w.x, w.op.coefficients, strict=True)]
    return w("Add" if len(parts) == 2 else "Sum", *parts)


def sliced(w: NodeWriter) -> str:
    starts, stops, steps = np.array(w.op.ranges, np.int64).T
    first, last, _ = np.array(w.twin.ranges, np.int64).T
    whole = (stops == w.shapes[0]) & (last == w.model.three.tensors[w.node.inputs[0]].shape)
    same = (starts == first) & (whole | (stops == last))
    need(same.all(), "it starts or stops at a place that depends on the batch size")
    return w("Slice", *w.x, starts, np.where(whole, LAST, stops), range(len(starts)), steps)


def flipped(w: NodeWriter) -> str:
    ones = np.ones_like(w.op.axes)
    return w("Slice", *w.x, -ones, -LAST * ones, w.op.axes, -ones)


def cropped(w: NodeWriter) -> str:
    tops = (np.array(w.fixed(2)) - w.same().crop) // 2
    return w("Slice", *w.x, tops, tops + w.op.crop, [2, 3])


def padded_channels(w: NodeWriter) -> str:
    channels, *rest = w.fixed(1)
    return w("Pad", *w.x, [*[0] * (len(rest) + 3), w.same().channels - channels, *[0] * len(rest)])


def split(w: NodeWriter) -> list[str]:
    sizes = w.same().sizes
    return w.model.add("Split", *w.x, sizes, axis=w.op.axis, count=len(sizes))


def clipped(w: NodeWriter, index: str, last: Input) -> str:
    """Indices of which those outside take the nearest element."""
    return w("Clip", w.cast(index, "int64"), 0, last)


def gathered(w: NodeWriter) -> str:
    x, index = w.x
    axis = w.op.axis
    return w("GatherElements", x, clipped(w, index, w("Sub", w("Gather", w("Shape", x), axis), 1)), axis=axis)


def convolution(w: NodeWriter) -> str:
    op = w.op
    operator = "Conv"
    settings = {}
    if isinstance(op, ops.ConvTranspose2d):
        operator = "ConvTranspose"
        settings = {"output_padding": op.output_padding}
    settings |= {"kernel_shape": op.kernel, "strides": op.stride, "pads": op.padding * 2, "dilations": op.dilation}
    return w(operator, *w.x, *w.weights, group=op.groups, **settings)


def dense(w: NodeWriter) -> str:
    weight, *bias = w.weights
    if len(w.shapes[0]) == 2:
        return w("Gemm", *w.x, weight, *bias, transB=1)
    y = w("MatMul", *w.x, w("Transpose", weight, perm=(1, 0)))
    return w("Add", y, *bias) if bias else y


def pool(w: NodeWriter) -> str:
    """Padding that is counted is in front; windows that hang over the end have more padding there, never counted."""
    op = w.same()
    (x,) = w.x
    front = np.array(op.padding)
    extents = np.array(w.fixed(2))
    if isinstance(op, ops.AvgPool2d) and op.count_padding and front.any():
        x = w("Pad", x, [0, 0, *front] * 2)
        front, extents = 0 * front, extents + 2 * front
    behind = np.maximum((np.array(w.y.shape[2:]) - 1) * op.stride + op.kernel - extents - front, 0)
    return w(
        "MaxPool" if isinstance(op, ops.MaxPool2d) else "AveragePool",
        x,
        kernel_shape=op.kernel,
        strides=op.stride,
        pads=[*front, *behind],
    )


def by_matrices(matrix: Callable[[Any, int, int], Array]) -> Writer:
    """A product with a matrix of each side: of the operator, the axis and the extent."""

    def write(w: NodeWriter) -> str:
        rows, columns = (matrix(w.same(), axis, extent) for axis, extent in enumerate(w.fixed(2)))
        return w("MatMul", rows, w("MatMul", *w.x, columns.T))

    return write


def means(op: ops.AdaptiveAvgPool2d, axis: int, extent: int) -> Array:
    (first, last), size = op.along(axis, extent, op.size[axis])
    place = np.arange(extent)
    inside: Array = (place >= first[:, None]) & (place < last[:, None])
    return np.divide(inside, size[:, None])


def rms_norm(w: NodeWriter) -> str:
    (x,) = w.x
    mean = w("ReduceMean", w("Mul", x, x), range(-w.op.axes, 0))
    return w("Mul", w("Div", x, w("Sqrt", w("Add", mean, w.op.epsilon))), *w.weights)


def group_norm(w: NodeWriter) -> str:
    groups = w.op.groups
    axes = len(w.shapes[0]) - 2
    rows = w("Reshape", *w.x, [0, groups, -1])
    normal = w("InstanceNormalization", rows, np.ones(groups), np.zeros(groups), epsilon=w.op.epsilon)
    weight, bias = (w("Reshape", each, [-1] + [1] * axes) for each in w.weights)
    return w("Add", w("Mul", w("Reshape", normal, w.extents(reshaped=True)), weight), bias)


def local_response_norm(w: NodeWriter) -> str:
    op = w.op
    need(op.size % 2 == 1, f"local_response_norm: size must be odd in ONNX, got {op.size}")
    return w("LRN", *w.x, size=op.size, alpha=op.alpha, beta=op.beta, bias=op.k)


def gelu_by_erf(x: Element) -> Element:
    return x * 0.5 * (1 + erf(x * ROOT))


def gelu_by_tanh(x: Element) -> Element:
    return x * 0.5 * (1 + tanh(SCALE * (x + CUBE * x * x * x)))


def gelu(w: NodeWriter) -> str:
    return by_formula(w, formula(gelu_by_tanh if w.op.tanh else gelu_by_erf))


def attention(w: NodeWriter) -> str:
    q, k, v, *masks = w.x
    axes = [*range(len(w.shapes[0]))]
    scores = w("Mul", w("MatMul", q, w("Transpose", k, perm=[*axes[:-2], axes[-1], axes[-2]])), w.op.scale)
    if masks and w.dtypes[3] == FLOAT:
        scores = w("Add", scores, *masks)
    elif masks:
        scores = w("Where", w.cast(masks[0], "bool"), scores, -np.inf)
    if w.op.causal:
        scores = w("Where", np.tri(w.fixed(-2)[0], w.shapes[1][-2], dtype=bool), scores, -np.inf)
    weights = w("Softmax", scores, axis=-1)
    if masks:  # a row with all columns hidden gives 0
        weights = w("Where", w("Less", w("ReduceMax", scores, [-1]), LOWEST), 0.0, weights)
    return w("MatMul", weights, v)


def rotary(w: NodeWriter) -> str:
    (x,) = w.x
    turns = np.tile(angles(w.op, w.fixed(-2)), 2)
    half = turns.shape[1] // 2
    partners = w("Gather", x, np.roll(np.arange(2 * half), half), axis=-1)
    sines = np.sin(turns) * np.repeat([-1, 1], half)
    return w("Add", w("Mul", x, np.cos(turns)), w("Mul", partners, sines))


def recurrent(kind: str, w: NodeWriter) -> list[str]:
    """A layer of one direction; its weights' gates are put into ONNX's order."""
    x, *states = w.x
    order = np.argsort(GATES[kind])
    rows = np.arange(len(order) * w.op.units).reshape(len(order), -1)[order].reshape(1, -1)
    weight, inner, *biases = (w("Gather", each, rows) for each in w.weights)
    y, *last = w.model.add(
        kind.upper(),
        *(w("Transpose", x, perm=(1, 0, 2)), weight, inner, w("Concat", *biases, axis=1), ""),
        *(w("Unsqueeze", state, [0]) for state in states),
        count=3 if kind == "lstm" else 2,
        hidden_size=w.op.units,
        **({"linear_before_reset": 1} if kind == "gru" else {}),
    )
    return [w("Transpose", w("Squeeze", y, [1]), perm=(1, 0, 2)), *(w("Squeeze", each, [0]) for each in last)]


def normalised(w: NodeWriter) -> str:
    channels, *rest = w.fixed(1)
    by_channel = [channels, *[1] * len(rest)]
    mean = np.array(w.op.mean, float).reshape(by_channel if len(w.op.mean) == channels else w.fixed(1))
    return w("Div", w("Sub", w.cast(w.x[0], FLOAT), mean), np.array(w.op.std, float).reshape(by_channel))


# Of integers, and of bools.
INTEGER = {"+": "Add", "-": "Sub", "*": "Mul", "max": "Max", "min": "Min", "%": "Mod", FROM_START: "Mod"}
LOGICAL = {"&": "And", "|": "Or", "^": "Xor"}


def integer(w: NodeWriter) -> str:
    sign = w.op.sign
    x = w.x
    if sign in LOGICAL:
        return w(LOGICAL[sign] if w.dtypes[0] == "bool" else f"Bitwise{LOGICAL[sign]}", *x)
    if sign == "//":  # ONNX rounds to 0
        return w.cast(w("Floor", w("Div", *(w.cast(each, "float64") for each in x))), "int32")
    return w(INTEGER[sign], *x)


REDUCTIONS = {
    "+": "ReduceSum",
    "*": "ReduceProd",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "|": "ReduceMax",
    "&": "ReduceMin",
}


def integers_reduced(w: NodeWriter) -> str:
    sign = w.op.sign
    axis = w.op.axis
    x = w.cast(w.x[0], "int32")
    need(w.dtypes[0] == "bool" or sign not in LOGICAL, f"ONNX has no {sign} along an axis of integers")
    need(not w.op.running or sign == "+", f"ONNX has no running {sign}")
    return w.cast(w("CumSum", x, axis) if w.op.running else w(REDUCTIONS[sign], x, [axis]), w.dtypes[0])


def places(w: NodeWriter) -> str:
    """Of equal elements the first comes first in ONNX, too."""
    count = w("Gather", w.extents(), [w.op.axis])
    return w.cast(w.model.add("TopK", *w.x, count, axis=w.op.axis, largest=0, count=2)[1], "int32")


def scattered(w: NodeWriter) -> str:
    op = w.op
    need(op.shape[op.axis] == w.twin.shape[op.axis], "it adds along an axis whose length depends on the batch size")
    zeros = w.cast(w("Expand", 0.0, w.extents()), w.dtypes[0])
    return w("ScatterElements", zeros, clipped(w, w.x[1], op.shape[op.axis] - 1), w.x[0], axis=op.axis, reduction="add")


WRITERS: dict[type, Writer] = {
    **dict.fromkeys(ops.POINTWISE, by_formula),
    **dict.fromkeys((ops.ReduceMax, ops.ReduceMean, ops.ReduceSum), lambda w: w(type(w.op).__name__, *w.x, w.op.axes)),
    **{op: node(op.__name__) for op in (ops.Erf, ops.Relu, ops.Sigmoid, ops.Tanh)},
    **{op: node(op.__name__, axis="axis") for op in (ops.Concat, ops.LogSoftmax, ops.Softmax)},
    ops.AdaptiveAvgPool2d: by_matrices(means),
    ops.Add: added,
    ops.Arange: lambda w: w.cast(w("Range", 0, w("Squeeze", w.extents()), 1), "int32"),
    ops.ArgSort: places,
    ops.Attention: attention,
    ops.AvgPool2d: pool,
    ops.BatchNorm: lambda w: w(
        "BatchNormalization", *w.x, *w.weights, epsilon=w.op.epsilon, momentum=1 - w.op.momentum
    ),
    ops.CentreCrop: cropped,
    ops.ClippedRelu: lambda w: w("Clip", *w.x, 0.0, w.op.ceiling),
    ops.Conv2d: convolution,
    ops.ConvTranspose2d: convolution,
    ops.CumulativeSum: lambda w: w("CumSum", *w.x, w.op.axis),
    ops.Dense: dense,
    ops.Dropout: lambda w: w.x[0],
    ops.Embedding: lambda w: w("Gather", *w.weights, clipped(w, w.x[0], w.op.count - 1)),
    ops.Expand: lambda w: w("Expand", *w.x, w.extents()),
    ops.Flatten: viewed,
    ops.Flip: flipped,
    ops.Full: lambda w: w("Expand", float(w.op.value), w.extents()),
    ops.Gather: gathered,
    ops.Gelu: gelu,
    ops.GlobalAvgPool2d: lambda w: w("ReduceMean", *w.x, [2, 3], keepdims=0),
    ops.GroupNorm: group_norm,
    ops.Gru: partial(recurrent, "gru"),
    ops.IntegerOperation: integer,
    ops.IntegerReduction: integers_reduced,
    ops.LayerNorm: lambda w: w("LayerNormalization", *w.x, *w.weights, axis=-w.op.axes, epsilon=w.op.epsilon),
    ops.LeakyRelu: node("LeakyRelu", alpha="slope"),
    ops.LocalResponseNorm: local_response_norm,
    ops.Lstm: partial(recurrent, "lstm"),
    ops.Matmul: node("MatMul"),
    ops.MaxPool2d: pool,
    ops.Maximum: node("Max"),
    ops.Multiply: lambda w: reduce(partial(w, "Mul"), w.x),
    ops.Normalise: normalised,
    ops.PadChannels: padded_channels,
    ops.Parameter: lambda w: w.weights[0],
    ops.Permute: node("Transpose", perm="axes"),
    ops.RmsNorm: rms_norm,
    ops.Rotary: rotary,
    ops.ScatterAdd: scattered,
    ops.Slice: sliced,
    ops.Split: split,
    ops.Table: table,
    ops.Upsample: by_matrices(lambda op, axis, extent: weights(extent, op.scale[axis], op.mode)),
    ops.View: viewed,
}
WRITERS |= {layer: WRITERS[layer.__mro__[2]] for layer in OF}  # whose weights are inputs
