"""Means over elements that count, and the number of labels that count."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.arguments import Address, Floats
from mpibow.kernels.compiled.command import native
from mpibow.kernels.compiled.numeric import index_at, wide
from mpibow.ops import CountedMean, LabelCount

_f = np.float32


@native
def batch_mean(sums: Floats, counts: Floats, y: Floats, factor: Floats) -> None:
    """y = sums n / sum(counts), 0 if sum(counts) is 0."""
    n = len(y)
    total = 0.0
    for i in range(n):
        total += counts[i]
    factor[0] = _f(n / total) if total != 0 else _f(0)
    for i in range(n):
        y[i] = sums[i] * factor[0]


@native
def batch_mean_back(dy: Floats, factor: Floats, dx: Floats) -> None:
    """dx = factor dy."""
    for i in range(len(dx)):
        dx[i] = dy[i] * factor[0]


@native
def each_mean(sums: Floats, counts: Floats, y: Floats) -> None:
    """y = sums / counts, sums where counts is 0."""
    for i in range(len(y)):
        y[i] = sums[i] / counts[i] if counts[i] != 0 else sums[i]


@native
def label_count(labels: Address, y: Floats, each: int, wide_labels: bool, ignored: int, weight: Floats = None) -> None:
    """y = the labels of each sample that are not `ignored`, or the sum of their classes' weights."""
    weighs = len(weight) > 0
    for i in range(len(y)):
        total = _f(0)
        for j in range(each):
            label = index_at(labels, wide_labels, i * each + j)
            if label != ignored:
                total += weight[min(max(label, 0), len(weight) - 1)] if weighs else _f(1)
        y[i] = total


def mean_buffers(op: CountedMean, shapes: Shapes) -> Buffers:
    return Buffers(saved={"factor": ((1,), FLOAT)}) if shapes.training else Buffers()


def mean_forward(call: Call) -> Run:
    sums, counts = call.x
    return (batch_mean if "factor" in call.saved else each_mean).on(call, sums=sums, counts=counts)


def mean_backward(call: Call) -> Run:
    return batch_mean_back.on(call)


def count_forward(call: Call) -> Run:
    op: LabelCount = call.op
    label, n = call.x[0], len(call.y)
    weight = None if op.weight is None else np.array(op.weight, np.float32)
    each = label.size // n
    return label_count.on(call, labels=label, each=each, wide_labels=wide(label), ignored=op.ignore, weight=weight)
