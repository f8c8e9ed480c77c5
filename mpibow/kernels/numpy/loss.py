"""Softmax, softmax cross-entropy and accuracy, sample by sample."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.ops import Accuracy, SoftCrossEntropy, Softmax, SoftmaxCrossEntropy


def softmax_buffers(op: Softmax, shapes: Shapes) -> Buffers:
    column: dict[str, Spec] = {"column": (tuple(1 if i == op.axis else n for i, n in enumerate(shapes.y)), FLOAT)}
    return Buffers(forward=column, backward={**column, "part": (shapes.y, FLOAT)})


def softmax_forward(call: Call) -> Run:
    x, y, column, axis = call.x[0], call.y, call.scratch["column"], call.op.axis

    def run() -> None:
        np.max(x, axis=axis, keepdims=True, out=column)
        np.subtract(x, column, out=y)
        np.exp(y, out=y)
        np.sum(y, axis=axis, keepdims=True, out=column)
        np.divide(y, column, out=y)

    return run


def softmax_backward(call: Call) -> Run:
    y, dy, dx = call.y, call.dy, call.dx[0]
    part, column, axis = call.scratch["part"], call.scratch["column"], call.op.axis

    def run() -> None:  # y (dy - sum(dy y))
        np.multiply(dy, y, out=part)
        np.sum(part, axis=axis, keepdims=True, out=column)
        np.subtract(dy, column, out=part)
        np.multiply(part, y, out=dx)

    return run


def cross_entropy_buffers(op: SoftmaxCrossEntropy, shapes: Shapes) -> Buffers:
    n, classes = shapes.x[0]
    kept: dict[str, Spec] = {"probability": ((n, classes), FLOAT), "index": ((n,), "int64")}
    if op.ignore is not None:
        kept["ignored"] = ((n,), "bool")
    vector: Spec = ((n,), FLOAT)
    scratch: dict[str, Spec] = {"column": ((n, 1), FLOAT), "picked": vector}
    if not shapes.training:
        return Buffers(forward={**kept, **scratch})
    return Buffers(
        saved=kept, forward=scratch, backward={"picked": vector, **({"share": vector} if op.smoothing else {})}
    )


def cross_entropy_forward(call: Call) -> Run:
    (logits, label), y = call.x, call.y
    probability, index = call.buffer("probability"), call.buffer("index")
    column, picked = call.scratch["column"], call.scratch["picked"]
    flat, starts = probability.reshape(-1), np.arange(len(label)) * logits.shape[1]
    ignore, smoothing = call.op.ignore, call.op.smoothing
    ignored = None if ignore is None else call.buffer("ignored")
    rest, spread = y.dtype.type(1.0 - smoothing), y.dtype.type(smoothing / logits.shape[1])

    def run() -> None:
        np.add(starts, label, out=index)
        if ignored is not None:
            np.equal(label, ignore, out=ignored)
            np.copyto(index, starts, where=ignored)  # `ignore` need not be a class
        np.max(logits, axis=1, keepdims=True, out=column)
        np.subtract(logits, column, out=probability)
        flat.take(index, out=picked, mode="clip")  # the label's logit, before exp
        if smoothing:  # (1 - e) of it and e of the mean of all
            np.multiply(picked, rest, out=picked)
            np.sum(probability, axis=1, out=y)
            np.multiply(y, spread, out=y)
            np.add(picked, y, out=picked)
        np.exp(probability, out=probability)
        np.sum(probability, axis=1, keepdims=True, out=column)
        np.divide(probability, column, out=probability)
        np.log(column[:, 0], out=y)
        np.subtract(y, picked, out=y)
        if ignored is not None:
            np.copyto(y, 0, where=ignored)

    return run


def cross_entropy_backward(call: Call) -> Run:
    dy, dx, probability, index = call.dy, call.dx[0], call.saved["probability"], call.saved["index"]
    picked, ignored = call.scratch["picked"], call.saved.get("ignored")
    assert dx is not None
    flat, dy2, smoothing = dx.reshape(-1), dy.reshape(-1, 1), call.op.smoothing
    rest, spread = dy.dtype.type(1.0 - smoothing), dy.dtype.type(smoothing / dx.shape[1])
    ignored2 = None if ignored is None else ignored.reshape(-1, 1)
    share = call.scratch["share"] if smoothing else dy

    def run() -> None:  # dy (probability - target)
        if smoothing:
            np.subtract(probability, spread, out=dx)
            np.multiply(dx, dy2, out=dx)
            np.multiply(dy, rest, out=share)
        else:
            np.multiply(probability, dy2, out=dx)
        flat.take(index, out=picked, mode="clip")
        np.subtract(picked, share, out=picked)
        flat[index] = picked
        if ignored2 is not None:
            np.copyto(dx, 0, where=ignored2)

    return run


def soft_buffers(op: SoftCrossEntropy, shapes: Shapes) -> Buffers:
    slope: dict[str, Spec] = {"slope": (shapes.x[0], FLOAT)}
    column: Spec = ((shapes.y[0], 1), FLOAT)
    scratch: dict[str, Spec] = {"column": column, "mass": column}
    if op.smoothing:
        scratch["smooth"] = (shapes.x[0], FLOAT)
    return Buffers(saved=slope, forward=scratch) if shapes.training else Buffers(forward={**slope, **scratch})


def soft_forward(call: Call) -> Run:
    (logits, given), y, slope = call.x, call.y, call.buffer("slope")
    column, mass, smoothing = call.scratch["column"], call.scratch["mass"], call.op.smoothing
    target = call.scratch["smooth"] if smoothing else given
    rest, spread = y.dtype.type(1.0 - smoothing), y.dtype.type(smoothing / logits.shape[1])
    column1 = column[:, 0]

    def run() -> None:  # with t the target: y = sum(t) log(sum(exp(x))) - t x, slope = sum(t) softmax(x) - t
        if smoothing:
            np.multiply(given, rest, out=target)
            np.add(target, spread, out=target)
        np.max(logits, axis=1, keepdims=True, out=column)
        np.subtract(logits, column, out=slope)
        np.vecdot(target, slope, out=y)
        np.exp(slope, out=slope)
        np.sum(slope, axis=1, keepdims=True, out=column)
        np.divide(slope, column, out=slope)
        np.sum(target, axis=1, keepdims=True, out=mass)
        np.multiply(slope, mass, out=slope)
        np.subtract(slope, target, out=slope)
        np.log(column, out=column)
        np.multiply(column, mass, out=column)
        np.subtract(column1, y, out=y)

    return run


def soft_backward(call: Call) -> Run:
    dx, dy2, slope = call.dx[0], call.dy.reshape(-1, 1), call.saved["slope"]

    def run() -> None:
        np.multiply(slope, dy2, out=dx)

    return run


def accuracy_buffers(op: Accuracy, shapes: Shapes) -> Buffers:
    n, classes = shapes.x[0]
    rank: dict[str, Spec] = {"rank": ((n,), "int64")}
    if op.k == 1:
        return Buffers(forward=rank)
    masks: dict[str, Spec] = {"ahead": ((n, classes), "bool"), "level": ((n, classes), "bool"), "valid": ((n,), "bool")}
    return Buffers(forward={**rank, **masks, "picked": ((n, 1), FLOAT)})


def accuracy_forward(call: Call) -> Run:
    (logits, label), y, best = call.x, call.y, call.scratch["rank"]
    if call.op.k > 1:
        return _among_the_best(call)

    def run() -> None:
        np.argmax(logits, axis=1, out=best)
        np.equal(best, label, out=y, casting="unsafe")

    return run


def _among_the_best(call: Call) -> Run:
    (logits, label), y, k = call.x, call.y, call.op.k
    rank, picked, valid = call.scratch["rank"], call.scratch["picked"], call.scratch["valid"]
    ahead, level = call.scratch["ahead"], call.scratch["level"]
    classes = np.arange(logits.shape[1])
    starts, label2 = np.arange(len(label)) * len(classes), label.reshape(-1, 1)
    flat, picked1, first, last = logits.reshape(-1), picked[:, 0], level[:, 0], len(classes) - 1

    def run() -> None:  # a label's rank is how many logits are ahead of its own: larger, or as large and earlier
        np.add(starts, label, out=rank)
        flat.take(rank, out=picked1, mode="clip")
        np.equal(logits, picked, out=level)
        np.less(classes, label2, out=ahead)
        np.logical_and(level, ahead, out=ahead)
        np.less_equal(logits, picked, out=level)
        np.logical_not(level, out=level)  # not <= rather than >: a label whose logit is NaN is a miss
        np.logical_or(level, ahead, out=ahead)
        np.sum(ahead, axis=1, out=rank)
        np.greater_equal(label, 0, out=valid)
        np.less_equal(label, last, out=first)  # a label that is no class, as an ignored one, is a miss
        np.logical_and(valid, first, out=valid)
        np.less(rank, k, out=first)
        np.logical_and(valid, first, out=y, casting="unsafe")

    return run
