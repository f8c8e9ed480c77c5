"""Colour jitter: an image after the other, in place in y."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.numpy.augment import block_specs, draw_block
from mpibow.kernels.philox import stream
from mpibow.ops import Jitter
from mpibow.ops.colour import LUMA


def buffers(op: Jitter, shapes: Shapes) -> Buffers:
    n, channels, *rest = shapes.y
    grey = {"grey": ((2, *rest), FLOAT)} if op.saturation else {}
    sums = {"sums": ((channels,), "float64")} if op.contrast else {}
    return Buffers(forward={**block_specs(n), **grey, **sums})


def factor(spread: float, word: float) -> float:
    """Of [max(0, 1 - spread), 1 + spread] what a word of 32 bits says."""
    least = max(0.0, 1.0 - spread)
    return least + (1.0 + spread - least) * (word * 2.0**-32)


def grey_weights(channels: int) -> tuple[float, ...]:
    """What each channel adds to an image's grey."""
    return LUMA if channels == len(LUMA) else (1.0 / channels,) * channels


def forward(call: Call) -> Run:
    (x, counter), y, op, scratch = call.x, call.y, call.op, call.scratch
    words, draw = scratch["words"], draw_block(counter, stream(call.name), scratch)
    weights, size, number = grey_weights(x.shape[1]), x.shape[2] * x.shape[3], y.dtype.type
    luma = [number(weight) for weight in weights]

    def clip(image: Array) -> None:
        if op.limit is not None:
            np.maximum(image, number(0), out=image)
            np.minimum(image, number(op.limit), out=image)

    def contrast(image: Array, f: float) -> None:
        """Of uint8 the sums are exact, up to a million pixels: float32 products of integers below 256."""
        sums, mean = scratch["sums"], 0.0
        np.add.reduce(image.reshape(len(image), -1), axis=1, dtype=np.float64, out=sums)
        for weight, total in zip(weights, sums, strict=True):
            mean += weight * float(total)
        np.multiply(image, number(f), out=image)
        np.add(image, number((1.0 - f) * (mean / size)), out=image)

    def saturation(image: Array, f: float) -> None:
        grey, part = scratch["grey"]
        np.multiply(image[0], luma[0], out=grey)
        for channel in (1, 2):
            np.multiply(image[channel], luma[channel], out=part)
            np.add(grey, part, out=grey)
        np.multiply(grey, number(1.0 - f), out=grey)
        np.multiply(image, number(f), out=image)
        np.add(image, grey, out=image)

    def run() -> None:
        draw()
        np.copyto(y, x)
        for n, image in enumerate(y):
            np.multiply(image, number(factor(op.brightness, int(words[0, n]))), out=image)
            clip(image)
            if op.contrast:
                contrast(image, factor(op.contrast, int(words[1, n])))
                clip(image)
            if op.saturation:
                saturation(image, factor(op.saturation, int(words[2, n])))
                clip(image)

    return run
