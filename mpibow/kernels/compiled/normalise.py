"""Stored pixels normalised for a network, in one pass."""

from __future__ import annotations

import math

import numpy as np

from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.arguments import Address, Floats
from mpibow.kernels.compiled.command import floats, native, octets
from mpibow.ops.normalise import normalise_forward

_f = np.float32


@native
def centred(
    x: Address, y: Address, means: Floats, scales: Floats, planes: int, channels: int, size: int, octet: bool
) -> None:
    """Like `normalised`, with a mean for each of a sample's values: (channels, positions)."""
    for plane in range(planes):
        channel = plane % channels
        scale, mean = scales[channel], means[channel * size : (channel + 1) * size]
        row = floats(y + 4 * plane * size, size)
        if octet:
            pixels = octets(x + plane * size, size)
            for i in range(size):
                row[i] = (_f(pixels[i]) - mean[i]) * scale
        else:
            numbers = floats(x + 4 * plane * size, size)
            for i in range(size):
                row[i] = (numbers[i] - mean[i]) * scale


@native
def normalised(
    x: Address, y: Address, means: Floats, scales: Floats, planes: int, channels: int, size: int, octet: bool
) -> None:
    """y (n, channels, size) = (x - mean) scale; x is uint8 where `octet`, else float32."""
    for plane in range(planes):
        mean, scale = means[plane % channels], scales[plane % channels]
        row = floats(y + 4 * plane * size, size)
        if octet:
            pixels = octets(x + plane * size, size)
            for i in range(size):
                row[i] = (_f(pixels[i]) - mean) * scale
        else:
            numbers = floats(x + 4 * plane * size, size)
            for i in range(size):
                row[i] = (numbers[i] - mean) * scale


def forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    if x.dtype not in (np.uint8, np.float32):
        return normalise_forward(call)
    means, scales = np.array(call.op.mean, _f), (1.0 / np.array(call.op.std, np.float64)).astype(_f)
    n, channels, *rest = y.shape
    kernel = normalised if len(means) == channels else centred
    size, octet = math.prod(rest), x.dtype == np.uint8
    return kernel.command(
        x=x, y=y, means=means, scales=scales, planes=n * channels, channels=channels, size=size, octet=octet
    )
