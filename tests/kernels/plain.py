"""Slow definitions of operators, in plain loops: (op, inputs, weights) -> output, and the gradients for one of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.graph.graph import Array
from mpibow.ops.beta import larger_shares
from mpibow.ops.philox import stream
from tests.ops.test_philox import Words
from tests.ops.test_philox import plain as philox

Back = tuple[list[Array], dict[str, Array]]  # gradients of inputs, of weights


def add(op: ops.Add, *args: Any) -> Array:
    y = np.zeros(args[0].shape)
    for coefficient, x in zip(op.coefficients, args[:-1], strict=True):
        y += coefficient * x
    return y


def add_back(op: ops.Add, *args: Any) -> Back:
    return [coefficient * args[-1] for coefficient in op.coefficients], {}


def multiply(op: ops.Multiply, *args: Any) -> Array:
    return np.prod(args[:-1], axis=0)


def multiply_back(op: ops.Multiply, *args: Any) -> Back:
    *x, _, dy = args
    return [dy * np.prod(x[:i] + x[i + 1 :], axis=0) for i in range(len(x))], {}


def maximum(op: ops.Maximum, *args: Any) -> Array:
    y = np.zeros(args[0].shape)
    for at, _ in np.ndenumerate(y):
        y[at] = max(x[at] for x in args[:-1])
    return y


def maximum_back(op: ops.Maximum, *args: Any) -> Back:
    *x, _, dy = args
    dx = [np.zeros(one.shape) for one in x]
    for at, d in np.ndenumerate(dy):
        dx[max(range(len(x)), key=lambda i: x[i][at])][at] = d  # max keeps the first of equals
    return dx, {}


def concat(op: ops.Concat, *args: Any) -> Array:
    return np.concatenate(args[:-1], axis=op.axis)


def concat_back(op: ops.Concat, *args: Any) -> Back:
    *x, _, dy = args
    dx, start = [], 0
    for one in x:
        dx.append(dy.take(range(start, start + one.shape[op.axis]), axis=op.axis))
        start += one.shape[op.axis]
    return dx, {}


def pad_channels(op: ops.PadChannels, x: Array, w: Any) -> Array:
    y = np.zeros(op.infer(x.shape))
    for at, value in np.ndenumerate(x):
        y[at] = value
    return y


def pad_channels_back(op: ops.PadChannels, x: Array, w: Any, dy: Array) -> Back:
    return [np.array([dy[at] for at in np.ndindex(*x.shape)]).reshape(x.shape)], {}


def around(op: Any, shape: tuple[int, ...], at: tuple[int, ...]) -> Any:
    """The index of y[at]'s window in adaptive or global pooling."""
    if len(at) == 2:
        return at
    bounds = []
    for extent, size, i in zip(shape[2:], op.size, at[2:], strict=True):
        bounds.append(slice(math.floor(i * extent / size), math.ceil((i + 1) * extent / size)))
    return (*at[:2], *bounds)


def mean(op: Any, x: Array, w: Any) -> Array:
    y = np.zeros(op.infer(x.shape))
    for at, _ in np.ndenumerate(y):
        y[at] = x[around(op, x.shape, at)].mean()
    return y


def mean_back(op: Any, x: Array, w: Any, dy: Array) -> Back:
    dx = np.zeros(x.shape)
    for at, d in np.ndenumerate(dy):
        part = around(op, x.shape, at)
        dx[part] += d / x[part].size
    return [dx], {}


def elementwise(f: Callable[[Any, float], float], slope: Callable[[Any, float], float]) -> tuple[Any, Any]:
    """f and its derivative, number by number."""

    def forward(op: Any, x: Array, w: Any) -> Array:
        return np.array([f(op, value) for value in x.ravel().tolist()]).reshape(x.shape)

    def back(op: Any, x: Array, w: Any, dy: Array) -> Back:
        return [dy * np.array([slope(op, value) for value in x.ravel().tolist()]).reshape(x.shape)], {}

    return forward, back


def gelu(op: ops.Gelu, x: float) -> float:
    if op.tanh:
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def gelu_slope(op: ops.Gelu, x: float) -> float:
    if op.tanh:
        t = math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return 0.5 * math.erfc(-x / math.sqrt(2)) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def softmax(op: Any, x: Array, w: Any) -> Array:
    y = np.exp(x - x.max(axis=op.axis, keepdims=True))
    return y / y.sum(axis=op.axis, keepdims=True)


def softmax_back(op: ops.Softmax, x: Array, w: Any, dy: Array) -> Back:
    y, d = np.moveaxis(softmax(op, x, w), op.axis, -1), np.moveaxis(dy, op.axis, -1)
    dx = np.zeros(y.shape)
    for at in np.ndindex(*y.shape[:-1]):
        jacobian = np.diag(y[at]) - np.outer(y[at], y[at])
        dx[at] = jacobian @ d[at]
    return [np.moveaxis(dx, -1, op.axis)], {}


def target(op: Any, classes: int, given: Any) -> Array | None:
    """The probabilities that a loss compares with, None for an ignored label."""
    if isinstance(op, ops.SoftmaxCrossEntropy):
        if given == op.ignore:
            return None
        given = np.eye(classes)[given]
    return (1 - op.smoothing) * np.asarray(given) + op.smoothing / classes


def cross_entropy(op: Any, logits: Array, given: Array, w: Any) -> Array:
    y = np.zeros(len(logits))
    for n, row in enumerate(logits):
        t = target(op, len(row), given[n])
        if t is not None:
            y[n] = -sum(t[c] * (row[c] - np.log(np.exp(row).sum())) for c in range(len(row)))
    return y


def cross_entropy_back(op: Any, logits: Array, given: Array, w: Any, dy: Array) -> Back:
    dx = np.zeros(logits.shape)
    for n, row in enumerate(logits):
        t = target(op, len(row), given[n])
        if t is not None:
            dx[n] = dy[n] * (t.sum() * np.exp(row) / np.exp(row).sum() - t)
    return [dx], {}


def accuracy(op: ops.Accuracy, logits: Array, label: Array, w: Any) -> Array:
    best = [sorted(range(len(row)), key=lambda c: -row[c])[: op.k] for row in logits]  # stable: the first of equals
    return np.array([float(n in classes) for n, classes in zip(label.tolist(), best, strict=True)])


def neighbours(op: ops.LocalResponseNorm, channels: int, c: int) -> range:
    return range(max(0, c - op.size // 2), min(channels - 1, c + (op.size - 1) // 2) + 1)


def base(op: ops.LocalResponseNorm, x: Array, at: tuple[int, ...]) -> float:
    n, c, *rest = at
    squares = [float(x[(n, j, *rest)]) ** 2 for j in neighbours(op, x.shape[1], c)]
    return op.k + op.alpha / op.size * sum(squares)


def local_response_norm(op: ops.LocalResponseNorm, x: Array, w: Any) -> Array:
    y = np.zeros(x.shape)
    for at, value in np.ndenumerate(x):
        y[at] = value / base(op, x, at) ** op.beta
    return y


def local_response_norm_back(op: ops.LocalResponseNorm, x: Array, w: Any, dy: Array) -> Back:
    dx = np.zeros(x.shape)
    for at, d in np.ndenumerate(dy):
        b = base(op, x, at)
        dx[at] += d * b**-op.beta
        for j in neighbours(op, x.shape[1], at[1]):
            other = (at[0], j, *at[2:])
            dx[other] -= d * x[at] * op.beta * b ** (-op.beta - 1) * 2 * op.alpha / op.size * x[other]
    return [dx], {}


def layer_norm(op: ops.LayerNorm, x: Array, w: Any) -> Array:
    axes = tuple(range(x.ndim - op.axes, x.ndim))
    hat = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + op.epsilon)
    return hat * w["weight"] + w["bias"]


def layer_norm_back(op: ops.LayerNorm, x: Array, w: Any, dy: Array) -> Back:
    dx, dw = np.zeros(x.shape), {key: np.zeros(array.shape) for key, array in w.items()}
    shape = x.shape[-op.axes :]
    for at in np.ndindex(*x.shape[: -op.axes]):  # by the Jacobian of each row
        row, size = x[at].ravel(), x[at].size
        deviation, s = row - row.mean(), np.sqrt(row.var() + op.epsilon)
        jacobian = (np.eye(size) - 1 / size) / s - np.outer(deviation, deviation) / (size * s**3)
        dx[at] = (jacobian @ (dy[at] * w["weight"]).ravel()).reshape(shape)
        dw["weight"] += dy[at] * (deviation / s).reshape(shape)
        dw["bias"] += dy[at]
    return [dx], dw


def matrix_factorisation(op: Any, user: Array, item: Array, rating: Array, w: Any) -> Array:
    rows = zip(user.tolist(), item.tolist(), rating.tolist(), strict=True)
    return np.array([(w["user"][i] @ w["item"][j] - r) ** 2 for i, j, r in rows])


def matrix_factorisation_back(op: Any, user: Array, item: Array, rating: Array, w: Any, dy: Array) -> Back:
    dw = {key: np.zeros(array.shape) for key, array in w.items()}
    for i, j, r, d in zip(user.tolist(), item.tolist(), rating.tolist(), dy.tolist(), strict=True):
        slope = 2 * d * (w["user"][i] @ w["item"][j] - r)
        dw["user"][i] += slope * w["item"][j]
        dw["item"][j] += slope * w["user"][i]
    return [], dw


def block(counter: list[int], node: str = "node") -> Words:
    """A sample's first Philox block for a node."""
    seed, epoch, low, high = counter
    return philox((0, low, high, epoch), (seed, stream(node)))


def augment(op: ops.Augment, x: Array, counter: Array, w: Any) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (op.pad, op.pad), (op.pad, op.pad)))
    rows, columns = op.crop
    y = np.zeros(op.infer(x.shape, counter.shape), x.dtype)
    for n, words in enumerate(map(block, counter.tolist())):
        top = words[0] * (padded.shape[2] - rows + 1) // 2**32
        left = words[1] * (padded.shape[3] - columns + 1) // 2**32
        window = padded[n, :, top : top + rows, left : left + columns]
        y[n] = window[:, :, ::-1] if op.flip and words[2] >= 2**31 else window
    return y


def centre_crop(op: ops.CentreCrop, x: Array, w: Any) -> Array:
    y = np.zeros(op.infer(x.shape), x.dtype)
    top, left = ((extent - size) // 2 for extent, size in zip(x.shape[2:], op.crop, strict=True))
    for (n, c, i, j), _ in np.ndenumerate(y):
        y[n, c, i, j] = x[n, c, top + i, left + j]
    return y


def cutout(op: ops.Cutout, x: Array, counter: Array, w: Any) -> Array:
    y = x.copy()
    for n, words in enumerate(map(block, counter.tolist())):
        row, column = words[0] * x.shape[2] // 2**32, words[1] * x.shape[3] // 2**32  # the centre
        for i, j in np.ndindex(*x.shape[2:]):
            rows, columns = i - row + op.length // 2, j - column + op.length // 2
            if 0 <= rows < op.length and 0 <= columns < op.length:
                y[n, :, i, j] = 0
    return y


def jitter(op: ops.Jitter, x: Array, counter: Array, w: Any) -> Array:
    y = np.zeros(x.shape)

    def clipped(value: float) -> float:
        return value if op.limit is None else min(max(value, 0.0), op.limit)

    def grey(n: int, i: int, j: int) -> float:
        channels = [float(value) for value in y[n, :, i, j]]
        weights = (0.299, 0.587, 0.114) if len(channels) == 3 else (1 / len(channels),) * len(channels)
        return sum(weight * value for weight, value in zip(weights, channels, strict=True))

    for n, words in enumerate(map(block, counter.tolist())):
        spreads = (op.brightness, op.contrast, op.saturation)
        factors = [
            max(0, 1 - spread) + (1 + spread - max(0, 1 - spread)) * word / 2**32
            for spread, word in zip(spreads, words[:3], strict=True)
        ]
        pixels = list(np.ndindex(*x.shape[2:]))
        for c, (i, j) in product(range(x.shape[1]), pixels):
            y[n, c, i, j] = clipped(factors[0] * x[n, c, i, j])
        mean = sum(grey(n, i, j) for i, j in pixels) / len(pixels)
        for c, (i, j) in product(range(x.shape[1]), pixels):
            y[n, c, i, j] = clipped(factors[1] * y[n, c, i, j] + (1 - factors[1]) * mean)
        for i, j in pixels:
            g = grey(n, i, j)
            for c in range(x.shape[1]):
                y[n, c, i, j] = clipped(factors[2] * y[n, c, i, j] + (1 - factors[2]) * g)
    return y


def mix_shares(op: ops.MixShares, counter: Array, w: Any) -> Array:
    return np.array([larger_shares(op.alpha)[block(one)[0] // 2**20] for one in counter.tolist()])


def mix(op: ops.Mix, x: Array, share: Array, w: Any) -> Array:
    return np.array([share[n] * x[n] + (1 - share[n]) * x[(n + 1) % len(x)] for n in range(len(x))])


def one_hot(op: ops.OneHot, label: Array, w: Any) -> Array:
    return np.array([[float(n == c) for c in range(op.classes)] for n in label.tolist()])


PLAIN: dict[str, tuple[Callable[..., Array], Callable[..., Back] | None]] = {
    "add": (add, add_back),
    "augment": (augment, None),
    "centre_crop": (centre_crop, None),
    "cutout": (cutout, None),
    "jitter": (jitter, None),
    "multiply": (multiply, multiply_back),
    "maximum": (maximum, maximum_back),
    "concat": (concat, concat_back),
    "pad_channels": (pad_channels, pad_channels_back),
    "adaptive_avg_pool": (mean, mean_back),
    "global_avg_pool": (mean, mean_back),
    "leaky_relu": elementwise(lambda op, x: x if x > 0 else op.slope * x, lambda op, x: 1 if x > 0 else op.slope),
    "clipped_relu": elementwise(lambda op, x: min(max(x, 0), op.ceiling), lambda op, x: float(0 < x < op.ceiling)),
    "gelu": elementwise(gelu, gelu_slope),
    "softmax": (softmax, softmax_back),
    "softmax_cross_entropy": (cross_entropy, cross_entropy_back),
    "soft_cross_entropy": (cross_entropy, cross_entropy_back),
    "accuracy": (accuracy, None),
    "mix_shares": (mix_shares, None),
    "mix": (mix, None),
    "one_hot": (one_hot, None),
    "local_response_norm": (local_response_norm, local_response_norm_back),
    "layer_norm": (layer_norm, layer_norm_back),
    "matrix_factorisation": (matrix_factorisation, matrix_factorisation_back),
}
