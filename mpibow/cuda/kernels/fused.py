"""Fused learners: all replicas of a rank in one plan, and the places of their rows' elements in its arrays."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import ALIGNMENT, Array, Graph, Kernels, Layout, Op, Plan, choose_layout, compile_plan
from mpibow.graph.rewrite import frozen
from mpibow.graph.steps import gradient
from mpibow.graph.wide import widen
from mpibow.ops import (
    POINTWISE,
    Accuracy,
    AdaptiveAvgPool2d,
    Add,
    AvgPool2d,
    BatchNorm,
    Cast,
    Compare,
    Concat,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    Gelu,
    GlobalAvgPool2d,
    LayerNorm,
    LocalResponseNorm,
    Maximum,
    MaxPool2d,
    Multiply,
    PadChannels,
    SoftCrossEntropy,
    Softmax,
    SoftmaxCrossEntropy,
    Where,
)
from mpibow.ops.reshape import View
from mpibow.ops.wide import (
    Beside,
    WideConcat,
    WideDense,
    WideDropout,
    WideLayerNorm,
    WideLocalResponseNorm,
    WidePadChannels,
    WideSoftmax,
)

from .flat import BLOCK

ROWS = (SoftmaxCrossEntropy, SoftCrossEntropy, Accuracy)  # a row of logits a sample


def _same(op: Op, k: int) -> Op:
    return op


def _wide(kind: Callable[..., Op]) -> Callable[[Op, int], Op]:
    """An operator with the same settings, of k replicas."""
    return lambda op, k: kind(**vars(op), replicas=k)


# The operators that compute k replicas side by side. Not in it: operators that prepare images, or without channels.
WIDENED: Mapping[type, Callable[[Any, int], Op]] = {
    **dict.fromkeys((*ROWS, Add, BatchNorm, Flatten, Gelu, Maximum, Multiply), _same),
    **{op: _same for op in POINTWISE if op not in (Cast, Compare, Where)},
    **dict.fromkeys((AdaptiveAvgPool2d, AvgPool2d, GlobalAvgPool2d, MaxPool2d), _same),
    Concat: lambda op, k: WideConcat(op.inputs, op.axis, replicas=k) if op.axis == 1 else op,
    Conv2d: lambda op, k: replace(op, channels=k * op.channels, groups=k * op.groups),
    Dense: _wide(WideDense),
    Dropout: _wide(WideDropout),
    LayerNorm: _wide(WideLayerNorm),
    LocalResponseNorm: _wide(WideLocalResponseNorm),
    PadChannels: lambda op, k: WidePadChannels(k * op.channels, replicas=k),
    Softmax: lambda op, k: WideSoftmax(op.axis, replicas=k) if op.axis == 1 else op,
}


def fused_plan(graph: Graph, kernels: Kernels, dtype: str, k: int, names: Collection[str]) -> Plan:
    """The training plan of k learners; `graph` is one's, and weights `names` are frozen.

    Raises ShapeError where an operator has no such form.
    """
    wide = frozen(widen(graph, k, WIDENED, ROWS, View, Beside), names)
    plan = compile_plan(wide, choose_layout(wide, kernels), kernels, dtype, training=True)
    loss = gradient(plan.graph.outputs["loss"])  # every learner's is the mean of its own batch
    value = plan.program.values[loss]
    assert value.constant is not None
    plan.program.values[loss] = replace(value, constant=k * value.constant)
    return plan


def without_form(graph: Graph) -> str:
    """The part of a learner's graph that cannot be fused, in words; '' where all can."""
    try:
        widen(graph, 2, WIDENED, ROWS, View, Beside)
    except ShapeError as error:
        return str(error).removeprefix("execution: ").removesuffix("; set execution=streams")
    return ""


def fused_bytes(plan: Plan) -> int:
    """Device memory that learners of this plan take beside that of learners on streams: its arena, and its arrays."""
    whole = 2 * plan.layout.size + plan.statistics.size  # weights and gradients
    narrow = 2 * plan.layout.size if plan.dtype != plan.weight_dtype else 0
    return plan.arena_bytes + whole * np.dtype(plan.weight_dtype).itemsize + narrow


def blocks_of(own: Layout, wide: Layout, k: int) -> Array:
    """The places of a row's elements (layout `own`) in the layout of k replicas: (own.size / 16,) of BLOCK."""
    found = np.zeros(own.size // ALIGNMENT, BLOCK)
    there = {span.name: span for span in wide.spans}
    for span in own.spans:
        other = there[span.name]
        assert (other.size, other.format) == (k * span.size, span.format), (span, other)
        starts = np.arange(0, span.size, ALIGNMENT)
        part = found[span.offset // ALIGNMENT :][: len(starts)]
        part["place"], part["pitch"] = other.offset + starts, span.size
        part["count"] = np.minimum(span.size - starts, ALIGNMENT)
    return found
