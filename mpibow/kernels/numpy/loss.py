"""Softmax cross-entropy and accuracy, sample by sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes


def cross_entropy_buffers(op: Any, shapes: Shapes) -> Buffers:
    n, classes = shapes.x[0]
    kept = {"probability": ((n, classes), FLOAT), "index": ((n,), "int64")}
    column, picked = {"column": ((n, 1), FLOAT)}, {"picked": ((n,), FLOAT)}
    if not shapes.training:
        return Buffers(forward={**kept, **column, **picked})
    return Buffers(saved=kept, forward={**column, **picked}, backward=picked)


def cross_entropy_forward(call: Call) -> Run:
    (logits, label), y = call.x, call.y
    probability, index = call.buffer("probability"), call.buffer("index")
    column, picked = call.scratch["column"], call.scratch["picked"]
    flat, starts = probability.reshape(-1), np.arange(len(label)) * logits.shape[1]

    def run() -> None:
        np.add(starts, label, out=index)
        np.max(logits, axis=1, keepdims=True, out=column)
        np.subtract(logits, column, out=probability)
        flat.take(index, out=picked, mode="clip")  # the label's logit, before exp
        np.exp(probability, out=probability)
        np.sum(probability, axis=1, keepdims=True, out=column)
        np.divide(probability, column, out=probability)
        np.log(column[:, 0], out=y)
        np.subtract(y, picked, out=y)

    return run


def cross_entropy_backward(call: Call) -> Run:
    dy, dx, probability, index = call.dy, call.dx[0], call.saved["probability"], call.saved["index"]
    picked = call.scratch["picked"]
    assert dx is not None
    flat, dy2 = dx.reshape(-1), dy.reshape(-1, 1)

    def run() -> None:  # dy (probability - one hot)
        np.multiply(probability, dy2, out=dx)
        flat.take(index, out=picked, mode="clip")
        np.subtract(picked, dy, out=picked)
        flat[index] = picked

    return run


def accuracy_buffers(op: Any, shapes: Shapes) -> Buffers:
    return Buffers(forward={"best": ((shapes.x[0][0],), "int64")})


def accuracy_forward(call: Call) -> Run:
    (logits, label), y, best = call.x, call.y, call.scratch["best"]

    def run() -> None:
        np.argmax(logits, axis=1, out=best)
        np.equal(best, label, out=y, casting="unsafe")

    return run
