"""Stored pixels normalised for a network, in one pass."""

from __future__ import annotations

import math

import numpy as np

from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.command import command, floats, native, octets, words
from mpibow.ops.normalise import normalise_forward

_f = np.float32


@native
def centred(arguments: int, _: int, count: int, __: int) -> int:
    """Like `normalised`, with a mean for each of a sample's values: (channels, positions)."""
    a = words(arguments, count)
    channels, size = a[3], a[4]
    means, scales = floats(a[6], channels * size), floats(a[7], channels)
    for plane in range(a[2] * channels):
        channel = plane % channels
        scale, mean = scales[channel], means[channel * size : (channel + 1) * size]
        y = floats(a[1] + 4 * plane * size, size)
        if a[5]:
            pixels = octets(a[0] + plane * size, size)
            for i in range(size):
                y[i] = (_f(pixels[i]) - mean[i]) * scale
        else:
            x = floats(a[0] + 4 * plane * size, size)
            for i in range(size):
                y[i] = (x[i] - mean[i]) * scale
    return 0


@native
def normalised(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, n, channels, positions, bytes, means, scales): y = (x - mean) scale; x is uint8 where `bytes`."""
    a = words(arguments, count)
    means, scales, size = floats(a[6], a[3]), floats(a[7], a[3]), a[4]
    for plane in range(a[2] * a[3]):
        mean, scale = means[plane % a[3]], scales[plane % a[3]]
        y = floats(a[1] + 4 * plane * size, size)
        if a[5]:
            pixels = octets(a[0] + plane * size, size)
            for i in range(size):
                y[i] = (_f(pixels[i]) - mean) * scale
        else:
            x = floats(a[0] + 4 * plane * size, size)
            for i in range(size):
                y[i] = (x[i] - mean) * scale
    return 0


def forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    if x.dtype not in (np.uint8, np.float32):
        return normalise_forward(call)
    means, scales = np.array(call.op.mean, _f), (1.0 / np.array(call.op.std, np.float64)).astype(_f)
    n, channels, *rest = y.shape
    function = normalised if len(means) == channels else centred
    return command(function, x, y, n, channels, math.prod(rest), int(x.dtype == np.uint8), means, scales)
