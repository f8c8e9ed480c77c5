"""Cross-entropies and accuracy, a sample (a row of logits) at a time, and means over elements that count.

Forward saves the slope, softmax(x) - target, in both forms of the loss; backward only scales its rows. A label that is
no class gives NaN, as do logits that are NaN or whose largest is infinite: errors stay visible.
"""

import math

import numpy as np

from mpibow.graph import FLOAT, Buffers, Call, Kernel, Op, Run, Shapes
from mpibow.ops import Accuracy, CountedMean, LabelCount, SoftCrossEntropy, SoftmaxCrossEntropy

from .native import Address, Arguments, Floats, Indices, floats, integers, native, row_at
from .numeric import exp, index_at, largest

_f = np.float32


@native
def cross_entropy(
    logits: Address,
    label: Indices,
    y: Floats,
    slope: Address,
    classes: int,
    ignores: bool,
    ignore: int,
    smoothing: float,
) -> None:
    """y = the loss of each row, slope = its gradient; labels that are `ignore` give 0 if `ignores`."""
    rest = _f(1.0 - smoothing)
    spread = _f(smoothing / classes)
    for i in range(len(y)):
        place = index_at(label, i)
        x = row_at(logits, i, classes)
        slope_row = row_at(slope, i, classes)
        ignored = ignores and place == ignore
        if ignored or place < 0 or place >= classes:
            y[i] = _f(0) if ignored else _f(np.nan)
            slope_row[:] = y[i]
            continue
        best = largest(integers(logits + 4 * i * classes, classes))
        total = _f(0)
        drop = _f(0)
        for j in range(classes):
            below = x[j] - best
            drop += below
            slope_row[j] = exp(below)
            total += slope_row[j]
        share = _f(1) / total
        for j in range(classes):
            slope_row[j] = slope_row[j] * share - spread
        slope_row[place] -= rest
        y[i] = _f(math.log(total)) - rest * (x[place] - best)
        if smoothing:  # else 0 times minus infinity, for a logit of minus infinity
            y[i] -= spread * drop


@native
def soft_cross_entropy(
    logits: Address, target: Address, y: Floats, slope: Address, classes: int, smoothing: float
) -> None:
    """With t the target, y = sum(t) log(sum(exp(x))) - t x."""
    rest = _f(1.0 - smoothing)
    spread = _f(smoothing / classes)
    for i in range(len(y)):
        at = 4 * i * classes
        x = floats(logits + at, classes)
        given = floats(target + at, classes)
        slope_row = floats(slope + at, classes)
        best = largest(integers(logits + at, classes))
        total = _f(0)
        mass = _f(0)
        dot = _f(0)
        for j in range(classes):
            below = x[j] - best
            share = rest * given[j] + spread
            mass += share
            dot += share * below
            slope_row[j] = exp(below)
            total += slope_row[j]
        scale = mass / total
        for j in range(classes):
            slope_row[j] = slope_row[j] * scale - (rest * given[j] + spread)
        y[i] = mass * _f(math.log(total)) - dot


@native
def scale_rows(slope: Address, dy: Floats, dx: Address, classes: int) -> None:
    """dx[i, c] = slope[i, c] dy[i]."""
    for i in range(len(dy)):
        slope_row = row_at(slope, i, classes)
        dx_row = row_at(dx, i, classes)
        d = dy[i]
        for j in range(classes):
            dx_row[j] = slope_row[j] * d


@native
def among_the_best(logits: Address, label: Indices, y: Floats, classes: int, k: int) -> None:
    """y = 1 where fewer than k logits are ahead of the label's."""
    for i in range(len(y)):
        place = index_at(label, i)
        y[i] = _f(0)
        if place < 0 or place >= classes:
            continue
        x = row_at(logits, i, classes)
        mine = x[place]
        ahead = np.int32(0)
        for j in range(place):  # an earlier logit of the same value is ahead too; so is NaN
            ahead += np.int32(0) if x[j] < mine else np.int32(1)
        for j in range(place + 1, classes):
            ahead += np.int32(0) if x[j] <= mine else np.int32(1)
        if ahead < k and mine == mine:
            y[i] = _f(1)


def cross_entropy_buffers(op: Op, shapes: Shapes) -> Buffers:
    return Buffers(saved={"slope": (shapes.x[0], FLOAT)})


def _classes(call: Call) -> Arguments:
    return {"classes": call.x0.shape[1]}


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
def label_count(x: Indices, y: Floats, each: int, ignore: int, weight: Floats = None) -> None:
    """y = the labels of each sample that are not `ignore`, or their sum in `weight`: NaN, one number a class, NaN."""
    weighs = len(weight) > 0
    for i in range(len(y)):
        total = _f(0)
        for j in range(each):
            label = index_at(x, i * each + j)
            if label != ignore:
                total += weight[min(max(label + 1, 0), len(weight) - 1)] if weighs else _f(1)
        y[i] = total


def count_forward(call: Call) -> Run:
    weight = None if call.op.weight is None else np.array((np.nan, *call.op.weight, np.nan), np.float32)
    return label_count.on(call, each=call.x0.size // len(call.y), weight=weight)


SCALE_ROWS = scale_rows.half(_classes)
KERNELS = {
    Accuracy: Kernel(among_the_best.half(_classes)),
    CountedMean: Kernel(
        lambda call: (batch_mean if "factor" in call.saved else each_mean).on(call),
        batch_mean_back.half(),
        lambda op, shapes: Buffers(saved={"factor": ((1,), FLOAT)}) if op.whole or shapes.training else Buffers(),
    ),
    LabelCount: Kernel(count_forward),
    SoftCrossEntropy: Kernel(soft_cross_entropy.half(_classes), SCALE_ROWS, cross_entropy_buffers),
    SoftmaxCrossEntropy: Kernel(
        cross_entropy.half(
            lambda call: {"ignores": call.op.ignore is not None, "ignore": call.op.ignore or 0, **_classes(call)}
        ),
        SCALE_ROWS,
        cross_entropy_buffers,
    ),
}
