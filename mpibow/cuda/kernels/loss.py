"""Launches of softmax, cross-entropies and accuracy.

Losses, their gradients, slopes, soft targets and accuracies are float32 in every precision of activations.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from mpibow.cuda.kernels.kernels import Launch, instance, integer, kind, turns, warps
from mpibow.graph.formats import parse, physical
from mpibow.graph.kernel import Buffers, Call, Shapes


def _softmax(kernel: str, call: Call, *arrays: Any) -> list[Launch]:
    tag, axis = call.shapes.formats.y, call.op.axis
    extents, place = physical(tag, call.shapes.y), parse(tag)[0].index(axis)
    inner, length = prod(extents[place + 1 :]), extents[place] // getattr(call.op, "replicas", 1)
    rows = prod(extents) // length
    arguments = (*arrays, rows, length, inner)
    return [Launch(instance(kernel, kind(arrays[0])), warps(rows), arguments)]


def softmax_forward(call: Call) -> list[Launch]:
    return _softmax("softmax", call, call.x[0], call.y)


def softmax_backward(call: Call) -> list[Launch]:
    return _softmax("softmax_back", call, call.dy, call.y, call.dx[0])


def cross_entropy_buffers(op: Any, shapes: Shapes) -> Buffers:
    return Buffers(saved={"slope": (shapes.x[0], "float32")})


def cross_entropy_forward(call: Call) -> list[Launch]:
    (logits, label), ignore = call.x, call.op.ignore
    settings = float(call.op.smoothing), ignore is not None, np.int64(ignore or 0)
    arguments = (logits, label, call.y, call.saved["slope"], *settings, *logits.shape)
    return [Launch(instance("cross_entropy", kind(logits), integer(label)), warps(len(logits)), arguments)]


def soft_forward(call: Call) -> list[Launch]:
    logits, target = call.x
    arguments = (logits, target, call.y, call.saved["slope"], float(call.op.smoothing), *logits.shape)
    return [Launch(instance("soft_cross_entropy", kind(logits)), warps(len(logits)), arguments)]


def backward(call: Call) -> list[Launch]:
    dx: Any = call.dx[0]
    arguments = (call.saved["slope"], call.dy, dx, dx.shape[1], np.int64(dx.size))
    return [Launch(instance("scale_rows", kind(dx)), turns(dx.size), arguments)]


def accuracy_forward(call: Call) -> list[Launch]:
    logits, label = call.x
    arguments = (logits, label, call.y, call.op.k, *logits.shape)
    return [Launch(instance("among_the_best", kind(logits), integer(label)), warps(len(logits)), arguments)]
