"""Colour: what its tests take."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N, block
from tests.kernels.draw import (
    counted,
)


def shade(draw, shape) -> ops.Jitter:
    spreads = st.sampled_from([0.0, 0.1, 0.4, 1.0, 2.5])
    return ops.Jitter(draw(spreads), draw(spreads), draw(spreads) if shape[1] == 3 else 0.0, 255.0)


def jitter(op: ops.Jitter, x: Array, counter: Array, w) -> Array:
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


CHECKED = (
    Checked(
        op=ops.Jitter,
        cases=[
            Case(ops.Jitter(0.4, 0.3, 0.5, 255.0), ((5, 3, 4, 5), (5, 4)), ("uint8", "uint32"), 1 << 32),
            Case(ops.Jitter(1.5, 2.0, 3.0, 255.0), ((9, 3, 3, 3), (9, 4)), ("uint8", "uint32"), 1 << 32, id="wide"),
            Case(ops.Jitter(0.5), ((3, 2, 3, 4), (3, 4)), (FLOAT, "uint32"), 1 << 32, id="brightness"),
            Case(ops.Jitter(0.0, 0.9), ((4, 2, 3, 4), (4, 4)), (FLOAT, "uint32"), 1 << 32, id="contrast"),
            Case(ops.Jitter(0.0, 0.0, 0.7), ((4, 3, 2, 5), (4, 4)), (FLOAT, "uint32"), 1 << 32, id="saturation"),
        ],
        large=[Case(ops.Jitter(0.4, 0.4, 0.4, 255.0), ((N, 3, 4, 4), (N, 4)), ("uint8", "uint32"), 200)],
        random=counted(shade, "uint8"),
        plain=jitter,
    ),
)
