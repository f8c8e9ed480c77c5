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
from mpibow.kernels.compiled.arguments import Address, Floats
from mpibow.kernels.compiled.command import floats, integers, native
from mpibow.kernels.compiled.numeric import exp, index_at, inlined, largest, wide

_f = np.float32


@inlined
def _log(x: Any) -> Any:
    return _f(math.log(x))


@native
def cross_entropy(
    logits: Address, labels: Address, y: Floats, slope: Address, classes: int, wide_labels: bool, ignores: bool,
    ignore: int, smoothing: float,
) -> None:  # fmt: skip
    """y = the loss of each row, slope = its gradient; labels that are `ignore` give 0 if `ignores`."""
    n = len(y)
    rest, spread = _f(1.0 - smoothing), _f(smoothing / classes)
    for i in range(n):
        label = index_at(labels, wide_labels, i)
        x, slope_row = floats(logits + 4 * i * classes, classes), floats(slope + 4 * i * classes, classes)
        ignored = ignores and label == ignore
        if ignored or label < 0 or label >= classes:
            y[i] = _f(0) if ignored else _f(np.nan)
            for j in range(classes):
                slope_row[j] = y[i]
            continue
        best = largest(integers(logits + 4 * i * classes, classes))
        total, drop = _f(0), _f(0)
        for j in range(classes):
            below = x[j] - best
            drop += below
            slope_row[j] = exp(below)
            total += slope_row[j]
        share = _f(1) / total
        for j in range(classes):
            slope_row[j] = slope_row[j] * share - spread
        slope_row[label] -= rest
        y[i] = _log(total) - rest * (x[label] - best)
        if smoothing:  # else 0 times minus infinity, for a logit of minus infinity
            y[i] -= spread * drop


@native
def soft_cross_entropy(
    logits: Address, targets: Address, y: Floats, slope: Address, classes: int, smoothing: float
) -> None:
    """With t the target, y = sum(t) log(sum(exp(x))) - t x."""
    n = len(y)
    rest, spread = _f(1.0 - smoothing), _f(smoothing / classes)
    for i in range(n):
        at = 4 * i * classes
        x, given, slope_row = floats(logits + at, classes), floats(targets + at, classes), floats(slope + at, classes)
        best = largest(integers(logits + at, classes))
        total, mass, dot = _f(0), _f(0), _f(0)
        for j in range(classes):
            below, target = x[j] - best, rest * given[j] + spread
            mass += target
            dot += target * below
            slope_row[j] = exp(below)
            total += slope_row[j]
        share = mass / total
        for j in range(classes):
            slope_row[j] = slope_row[j] * share - (rest * given[j] + spread)
        y[i] = mass * _log(total) - dot


@native
def scale_rows(slope: Address, dy: Floats, dx: Address, classes: int) -> None:
    """dx[i, c] = slope[i, c] dy[i]."""
    n = len(dy)
    for i in range(n):
        slope_row, dx_row, d = floats(slope + 4 * i * classes, classes), floats(dx + 4 * i * classes, classes), dy[i]
        for j in range(classes):
            dx_row[j] = slope_row[j] * d


@native
def among_the_best(logits: Address, labels: Address, y: Floats, classes: int, wide_labels: bool, k: int) -> None:
    """y = 1 where fewer than k logits are ahead of the label's."""
    n = len(y)
    for i in range(n):
        label = index_at(labels, wide_labels, i)
        y[i] = _f(0)
        if label < 0 or label >= classes:
            continue
        x = floats(logits + 4 * i * classes, classes)
        mine, ahead = x[label], np.int32(0)
        for j in range(label):  # an earlier logit of the same value is ahead too; so is NaN
            ahead += np.int32(0) if x[j] < mine else np.int32(1)
        for j in range(label + 1, classes):
            ahead += np.int32(0) if x[j] <= mine else np.int32(1)
        if ahead < k and mine == mine:
            y[i] = _f(1)


def cross_entropy_buffers(op: Any, shapes: Shapes) -> Buffers:
    slope = {"slope": (shapes.x[0], FLOAT)}
    return Buffers(saved=slope)


def cross_entropy_forward(call: Call) -> Run:
    (logits, label), op = call.x, call.op
    return cross_entropy.on(
        call, logits=logits, labels=label, classes=logits.shape[1], wide_labels=wide(label),
        ignores=op.ignore is not None, ignore=op.ignore or 0, smoothing=op.smoothing,
    )  # fmt: skip


def cross_entropy_backward(call: Call) -> Run:
    return scale_rows.on(call, classes=call.x[0].shape[1])


def soft_forward(call: Call) -> Run:
    logits, target = call.x
    sizes = {"classes": logits.shape[1], "smoothing": call.op.smoothing}
    return soft_cross_entropy.on(call, logits=logits, targets=target, **sizes)


def accuracy_forward(call: Call) -> Run:
    logits, label = call.x
    sizes = {"classes": logits.shape[1], "k": call.op.k}
    return among_the_best.on(call, logits=logits, labels=label, wide_labels=wide(label), **sizes)
