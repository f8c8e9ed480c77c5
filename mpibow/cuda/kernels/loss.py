"""Launches of softmax, cross-entropies, accuracy and matrix factorisation.

Losses, their gradients, slopes, soft targets and accuracies are float32 in every precision of activations, as are the
tables, ratings and errors of a factorisation.
"""

import numpy as np

from mpibow.cuda.device.array import PlanArray
from mpibow.graph import Array, Buffers, Call, Op, Shapes

from .elementwise import fill
from .kernels import Launches, integer, kind, launch, turns, warps
from .layout import around


def _softmax(kernel: str, call: Call, *arrays: PlanArray) -> Launches:
    outer, length, inner = around(call, call.op.axis, call.shapes.y)
    k = getattr(call.op, "replicas", 1)
    rows, length = outer * k * inner, length // k
    return launch(kernel, warps(rows), *arrays, rows, length, inner, of=(kind(arrays[0]),))


def softmax_forward(call: Call) -> Launches:
    return _softmax("softmax", call, call.x0, call.y)


def softmax_backward(call: Call) -> Launches:
    return _softmax("softmax_back", call, call.dy, call.y, call.dx0)


def cross_entropy_buffers(op: Op, shapes: Shapes) -> Buffers:
    return Buffers(saved={"slope": (shapes.x[0], "float32")})


def cross_entropy_forward(call: Call) -> Launches:
    (logits, label), ignore = call.x, call.op.ignore
    settings = float(call.op.smoothing), ignore is not None, np.int64(ignore or 0)
    rest, types = (call.saved["slope"], *settings, *logits.shape), (kind(logits), integer(label))
    return launch("cross_entropy", warps(len(logits)), logits, label, call.y, *rest, of=types)


def soft_forward(call: Call) -> Launches:
    logits, target = call.x
    rest = call.saved["slope"], float(call.op.smoothing), *logits.shape
    return launch("soft_cross_entropy", warps(len(logits)), logits, target, call.y, *rest, of=(kind(logits),))


def scale_rows(call: Call) -> Launches:
    dx = call.dx0
    sizes = dx.shape[1], np.int64(dx.size)
    return launch("scale_rows", turns(dx.size), call.saved["slope"], call.dy, dx, *sizes, of=(kind(dx),))


def accuracy_forward(call: Call) -> Launches:
    logits, label = call.x
    types, arguments = (kind(logits), integer(label)), (logits, label, call.y, call.op.k, *logits.shape)
    return launch("among_the_best", warps(len(logits)), *arguments, of=types)


def factorisation_buffers(op: Op, shapes: Shapes) -> Buffers:
    return Buffers(saved={"error": (shapes.y, "float32")})


def factorisation_forward(call: Call) -> Launches:
    (user, item, rating), w, op, n = call.x, call.w, call.op, call.y.size
    arguments = user, item, rating, w["user"], w["item"], call.y, call.saved["error"], op.factors, op.users, op.items, n
    return launch("squared_errors", warps(n), *arguments, of=(integer(user), integer(item)))


def factorisation_backward(call: Call) -> Launches:
    (user, item, _), op = call.x, call.op
    one = _gathered(call, (user, op.users), (item, op.items), call.w["item"], call.dw["user"])
    return [*one, *_gathered(call, (item, op.items), (user, op.users), call.w["user"], call.dw["item"])]


def _gathered(
    call: Call, mine: tuple[Array, int], theirs: tuple[Array, int], table: Array, gradient: Array
) -> Launches:
    (index, rows), (other, other_rows), n = mine, theirs, call.dy.size
    arguments = call.dy, call.saved["error"], index, other, table, gradient, call.op.factors, rows, other_rows, n
    return [fill(gradient, 0.0), *launch("gathered", warps(n), *arguments, of=(integer(index), integer(other)))]
