"""Cross-entropies and accuracy, a sample (a row of logits) at a time.

Forward saves the slope, softmax(x) - target, in both forms of the loss; backward only scales its rows. A label that is
no class gives NaN, as do logits that are NaN or whose largest is infinite: errors stay visible.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.command import command, floats, integers, native, number, words
from mpibow.kernels.compiled.numeric import exp, index_at, inlined, largest, wide

_f = np.float32


@inlined
def _log(x: Any) -> Any:
    return _f(math.log(x))


@native
def cross_entropy(arguments: int, _: int, count: int, __: int) -> int:
    """(logits, labels, y, slope, n, classes, wide labels, whether one is ignored, which, smoothing)."""
    a = words(arguments, count)
    n, classes, smoothing = a[4], a[5], number(a[9])
    rest, spread = _f(1.0 - smoothing), _f(smoothing / classes)
    y = floats(a[2], n)
    for i in range(n):
        label = index_at(a[1], a[6], i)
        x, slope = floats(a[0] + 4 * i * classes, classes), floats(a[3] + 4 * i * classes, classes)
        ignored = a[7] and label == a[8]
        if ignored or label < 0 or label >= classes:
            y[i] = _f(0) if ignored else _f(np.nan)
            for j in range(classes):
                slope[j] = y[i]
            continue
        best = largest(integers(a[0] + 4 * i * classes, classes))
        total, drop = _f(0), _f(0)
        for j in range(classes):
            below = x[j] - best
            drop += below
            slope[j] = exp(below)
            total += slope[j]
        share = _f(1) / total
        for j in range(classes):
            slope[j] = slope[j] * share - spread
        slope[label] -= rest
        y[i] = _log(total) - rest * (x[label] - best)
        if smoothing:  # else 0 times minus infinity, for a logit of minus infinity
            y[i] -= spread * drop
    return 0


@native
def soft_cross_entropy(arguments: int, _: int, count: int, __: int) -> int:
    """(logits, targets, y, slope, n, classes, smoothing): with t the target, y = sum(t) log(sum(exp(x))) - t x."""
    a = words(arguments, count)
    n, classes, smoothing = a[4], a[5], number(a[6])
    rest, spread, y = _f(1.0 - smoothing), _f(smoothing / classes), floats(a[2], n)
    for i in range(n):
        at = 4 * i * classes
        x, given, slope = floats(a[0] + at, classes), floats(a[1] + at, classes), floats(a[3] + at, classes)
        best = largest(integers(a[0] + at, classes))
        total, mass, dot = _f(0), _f(0), _f(0)
        for j in range(classes):
            below, target = x[j] - best, rest * given[j] + spread
            mass += target
            dot += target * below
            slope[j] = exp(below)
            total += slope[j]
        share = mass / total
        for j in range(classes):
            slope[j] = slope[j] * share - (rest * given[j] + spread)
        y[i] = mass * _log(total) - dot
    return 0


@native
def scale_rows(arguments: int, _: int, count: int, __: int) -> int:
    """(slope, dy, dx, n, classes): dx[i, c] = slope[i, c] dy[i]."""
    a = words(arguments, count)
    n, classes = a[3], a[4]
    dy = floats(a[1], n)
    for i in range(n):
        slope, dx, d = floats(a[0] + 4 * i * classes, classes), floats(a[2] + 4 * i * classes, classes), dy[i]
        for j in range(classes):
            dx[j] = slope[j] * d
    return 0


@native
def among_the_best(arguments: int, _: int, count: int, __: int) -> int:
    """(logits, labels, y, n, classes, wide labels, k): y = 1 where fewer than k logits are ahead of the label's."""
    a = words(arguments, count)
    n, classes = a[3], a[4]
    y = floats(a[2], n)
    for i in range(n):
        label = index_at(a[1], a[5], i)
        y[i] = _f(0)
        if label < 0 or label >= classes:
            continue
        x = floats(a[0] + 4 * i * classes, classes)
        mine, ahead = x[label], np.int32(0)
        for j in range(label):  # an earlier logit of the same value is ahead too; so is NaN
            ahead += np.int32(0) if x[j] < mine else np.int32(1)
        for j in range(label + 1, classes):
            ahead += np.int32(0) if x[j] <= mine else np.int32(1)
        if ahead < a[6] and mine == mine:
            y[i] = _f(1)
    return 0


def cross_entropy_buffers(op: Any, shapes: Shapes) -> Buffers:
    slope = {"slope": (shapes.x[0], FLOAT)}
    return Buffers(saved=slope) if shapes.training else Buffers(forward=slope)


def cross_entropy_forward(call: Call) -> Run:
    (logits, label), ignore = call.x, call.op.ignore
    ignores = (int(ignore is not None), ignore or 0)
    return command(
        cross_entropy, logits, label, call.y, call.buffer("slope"), *logits.shape, wide(label), *ignores,
        float(call.op.smoothing),
    )  # fmt: skip


def cross_entropy_backward(call: Call) -> Run:
    (dx, *_), slope = call.dx, call.saved["slope"]
    assert dx is not None
    return command(scale_rows, slope, call.dy, dx, *slope.shape)


def soft_forward(call: Call) -> Run:
    logits, target = call.x
    slope = call.buffer("slope")
    return command(soft_cross_entropy, logits, target, call.y, slope, *logits.shape, float(call.op.smoothing))


def accuracy_forward(call: Call) -> Run:
    logits, label = call.x
    return command(among_the_best, logits, label, call.y, *logits.shape, wide(label), call.op.k)
