"""Colour jitter, rounded as NumPy does: one pass for the mean grey, one that writes, one in place for saturation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.command import command, floats, native, number, octets, words
from mpibow.kernels.compiled.numeric import first_block, inlined, stepwise
from mpibow.ops import colour
from mpibow.ops.colour import LUMA
from mpibow.ops.philox import stream

_f = np.float32
RED, GREEN, BLUE = (_f(weight) for weight in LUMA)
_factor = stepwise(colour.factor)


@inlined
def _clipped(value: Any, least: Any, most: Any) -> Any:
    """`value` between the bounds; NaN stays."""
    value = least if value < least else value
    return most if value > most else value


@stepwise
def _scaled(value: Any, f: Any, shift: Any) -> Any:
    return value * f + shift


@stepwise
def _grey(red: Any, green: Any, blue: Any) -> Any:
    return red * RED + green * GREEN + blue * BLUE


@stepwise
def _shift(grey: Any, size: Any, f: Any) -> Any:
    return _f((1.0 - f) * (grey / size))


@inlined
def _total_grey(x: Any, weights: Any, size: Any, f: Any, least: Any, most: Any) -> Any:
    """The total grey of the image after its brightness. The sums of uint8 are exact, in any order."""
    grey = 0.0
    for c in range(len(weights)):
        plane, total = x[c * size : (c + 1) * size], 0.0
        for j in range(size):
            total += np.float64(_clipped(_f(plane[j]) * f, least, most))
        grey = _scaled(total, number(weights[c]), grey)
    return grey


@inlined
def _toned(x: Any, y: Any, weights: Any, size: Any, f: Any, spread: Any, word: Any, least: Any, most: Any) -> None:
    """Brightness by f and, where it has a spread, contrast."""
    if spread == 0.0:
        for j in range(len(y)):
            y[j] = _clipped(_f(x[j]) * f, least, most)
        return
    contrast = _factor(spread, word)
    slope, shift = _f(contrast), _shift(_total_grey(x, weights, size, f, least, most), size, contrast)
    for j in range(len(y)):
        y[j] = _clipped(_scaled(_clipped(_f(x[j]) * f, least, most), slope, shift), least, most)


@inlined
def _saturated(y: Any, size: Any, f: Any, least: Any, most: Any) -> None:
    red, green, blue = y[:size], y[size : 2 * size], y[2 * size :]
    slope, rest = _f(f), _f(1.0 - f)
    for j in range(size):
        shift = _grey(red[j], green[j], blue[j]) * rest
        red[j] = _clipped(_scaled(red[j], slope, shift), least, most)
        green[j] = _clipped(_scaled(green[j], slope, shift), least, most)
        blue[j] = _clipped(_scaled(blue[j], slope, shift), least, most)


@native
def jittered(arguments: int, _: int, count: int, __: int) -> int:
    """(x, y, n, counters, node, channels, positions, bytes, weights of channels, brightness, contrast, saturation,
    least, most): x is uint8 where `bytes`."""
    a = words(arguments, count)
    size, least, most = a[6], _f(number(a[12])), _f(number(a[13]))
    values, weights = a[5] * size, words(a[8], a[5])
    for i in range(a[2]):
        w = first_block(a[3], i, a[4])
        f, y = _f(_factor(number(a[9]), w[0])), floats(a[1] + 4 * i * values, values)
        if a[7]:
            _toned(octets(a[0] + i * values, values), y, weights, size, f, number(a[10]), w[1], least, most)
        else:
            _toned(floats(a[0] + 4 * i * values, values), y, weights, size, f, number(a[10]), w[1], least, most)
        if number(a[11]) != 0.0:
            _saturated(y, size, _factor(number(a[11]), w[2]), least, most)
    return 0


buffers = colour.buffers  # for NumPy's kernel, with pixels that are neither uint8 nor float32


def forward(call: Call) -> Run:
    (x, counter), y, op = call.x, call.y, call.op
    if x.dtype not in (np.uint8, np.float32):
        return colour.forward(call)
    n, channels, *rest = x.shape
    least, most = (-math.inf, math.inf) if op.limit is None else (0.0, op.limit)
    return command(
        jittered, x, y, n, counter, stream(call.name), channels, math.prod(rest), int(x.dtype == np.uint8),
        np.array(colour.grey_weights(channels)), float(op.brightness), float(op.contrast), float(op.saturation),
        least, most,
    )  # fmt: skip
