"""Stored pixels normalised for a network, in one pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.arguments import Address, Floats
from mpibow.kernels.compiled.command import floats, native, octets
from mpibow.kernels.compiled.numeric import inlined
from mpibow.ops.normalise import normalise_forward

_f = np.float32


@inlined
def _centred(pixels: Any, row: Any, mean: Any, scale: Any) -> None:
    """row = (pixels - mean) scale; there is one mean, or one for each pixel."""
    if len(mean) == 1:
        one = mean[0]
        for i in range(len(row)):
            row[i] = (_f(pixels[i]) - one) * scale
    else:
        for i in range(len(row)):
            row[i] = (_f(pixels[i]) - mean[i]) * scale


@native
def normalised(
    x: Address, y: Address, means: Address, scales: Floats, planes: int, channels: int, size: int, each: int,
    octet: bool,
) -> None:  # fmt: skip
    """y (n, channels, size) = (x - mean) scale, with `each` means a channel: 1 or `size`; x is uint8 where `octet`."""
    for plane in range(planes):
        channel = plane % channels
        scale, mean, row = scales[channel], floats(means + 4 * channel * each, each), floats(y + 4 * plane * size, size)
        if octet:
            _centred(octets(x + plane * size, size), row, mean, scale)
        else:
            _centred(floats(x + 4 * plane * size, size), row, mean, scale)


def forward(call: Call) -> Run:
    x, y = call.x[0], call.y
    if x.dtype not in (np.uint8, np.float32):
        return normalise_forward(call)
    means, scales = np.array(call.op.mean, _f), (1.0 / np.array(call.op.std, np.float64)).astype(_f)
    n, channels, *rest = y.shape
    return normalised.on(
        call, means=means, scales=scales, planes=n * channels, channels=channels, size=math.prod(rest),
        each=len(means) // channels, octet=x.dtype == np.uint8,
    )  # fmt: skip
