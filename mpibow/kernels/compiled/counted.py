"""Means over elements that count, and the number of labels that count."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.command import command, floats, native, words
from mpibow.kernels.compiled.numeric import index_at, wide
from mpibow.ops import CountedMean, LabelCount

_f = np.float32


@native
def batch_mean(arguments: int, _: int, count: int, __: int) -> int:
    """(sums, counts, y, factor, n): y = sums n / sum(counts), 0 if sum(counts) is 0."""
    a = words(arguments, count)
    n = a[4]
    sums, counts, y, factor = floats(a[0], n), floats(a[1], n), floats(a[2], n), floats(a[3], 1)
    total = 0.0
    for i in range(n):
        total += counts[i]
    factor[0] = _f(n / total) if total != 0 else _f(0)
    for i in range(n):
        y[i] = sums[i] * factor[0]
    return 0


@native
def batch_mean_back(arguments: int, _: int, count: int, __: int) -> int:
    """(dy, factor, dx, n)."""
    a = words(arguments, count)
    dy, factor, dx = floats(a[0], a[3]), floats(a[1], 1), floats(a[2], a[3])
    for i in range(a[3]):
        dx[i] = dy[i] * factor[0]
    return 0


@native
def each_mean(arguments: int, _: int, count: int, __: int) -> int:
    """(sums, counts, y, n): y = sums / counts, sums where counts is 0."""
    a = words(arguments, count)
    sums, counts, y = floats(a[0], a[3]), floats(a[1], a[3]), floats(a[2], a[3])
    for i in range(a[3]):
        y[i] = sums[i] / counts[i] if counts[i] != 0 else sums[i]
    return 0


@native
def label_count(arguments: int, _: int, count: int, __: int) -> int:
    """(labels, y, n, labels a sample, wide labels, ignored, weights or 0, classes)."""
    a = words(arguments, count)
    y, each, weighs = floats(a[1], a[2]), a[3], a[6] != 0
    weight = floats(a[6] if weighs else a[1], a[7] if weighs else 1)
    for i in range(a[2]):
        total = _f(0)
        for j in range(each):
            label = index_at(a[0], a[4], i * each + j)
            if label != a[5]:
                total += weight[min(max(label, 0), a[7] - 1)] if weighs else _f(1)
        y[i] = total
    return 0


def mean_buffers(op: CountedMean, shapes: Shapes) -> Buffers:
    return Buffers(saved={"factor": ((1,), FLOAT)}) if shapes.training else Buffers()


def mean_forward(call: Call) -> Run:
    sums, counts = call.x
    if "factor" in call.saved:
        return command(batch_mean, sums, counts, call.y, call.saved["factor"], len(sums))
    return command(each_mean, sums, counts, call.y, len(sums))


def mean_backward(call: Call) -> Run:
    dx = call.dx[0]
    assert dx is not None
    return command(batch_mean_back, call.dy, call.saved["factor"], dx, len(dx))


def count_forward(call: Call) -> Run:
    op: LabelCount = call.op
    label, n = call.x[0], len(call.y)
    weight = 0 if op.weight is None else np.array(op.weight, np.float32)
    return command(
        label_count, label, call.y, n, label.size // n, wide(label), op.ignore, weight, len(op.weight or (0,))
    )
