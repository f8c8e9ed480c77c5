"""Colour jitter, rounded as NumPy does: one pass for the mean grey, one that writes, one in place for saturation."""

import math
from collections.abc import Callable

import numpy as np

from mpibow.graph import Array, Binding, Call, Kernel, Run
from mpibow.ops import Jitter, colour
from mpibow.ops.colour import LUMA
from mpibow.ops.philox import stream

from .native import Address, Doubles, Single, native, octets, row_at
from .numeric import first_block, inlined, stepwise

_f = np.float32
RED, GREEN, BLUE = (_f(weight) for weight in LUMA)
_factor: Callable[..., float] = stepwise(colour.factor)
Real = float | np.float32  # in the kernel float32


@inlined
def _clipped(value: Real, least: Real, most: Real) -> Real:
    """`value` between the bounds; NaN stays."""
    value = least if value < least else value
    return most if value > most else value


@stepwise
def _scaled(value: Real, f: Real, shift: Real) -> Real:
    return value * f + shift


@stepwise
def _grey(red: Real, green: Real, blue: Real) -> Real:
    return red * RED + green * GREEN + blue * BLUE


@stepwise
def _shift(grey: Real, size: int, f: float) -> np.float32:
    return _f((1.0 - f) * (grey / size))


@inlined
def _total_grey(x: Array, weights: Array, size: int, f: Real, least: Real, most: Real) -> Real:
    """The total grey of the image after its brightness. The sums of uint8 are exact, in any order."""
    grey: Real = 0.0
    for c in range(len(weights)):
        plane = x[c * size : (c + 1) * size]
        total = 0.0
        for j in range(size):
            total += np.float64(_clipped(_f(plane[j]) * f, least, most))
        grey = _scaled(total, weights[c], grey)
    return grey


@inlined
def _toned(
    x: Array, y: Array, weights: Array, size: int, f: Real, spread: float, word: np.uint64, least: Real, most: Real
) -> None:
    """Brightness by f and, where it has a spread, contrast."""
    if spread == 0.0:
        for j in range(len(y)):
            y[j] = _clipped(_f(x[j]) * f, least, most)
        return
    contrast = _factor(spread, word)
    slope = _f(contrast)
    shift = _shift(_total_grey(x, weights, size, f, least, most), size, contrast)
    for j in range(len(y)):
        y[j] = _clipped(_scaled(_clipped(_f(x[j]) * f, least, most), slope, shift), least, most)


@inlined
def _saturated(y: Array, size: int, f: float, least: Real, most: Real) -> None:
    red = y[:size]
    green = y[size : 2 * size]
    blue = y[2 * size :]
    slope = _f(f)
    rest = _f(1.0 - f)
    for j in range(size):
        shift = _grey(red[j], green[j], blue[j]) * rest
        red[j] = _clipped(_scaled(red[j], slope, shift), least, most)
        green[j] = _clipped(_scaled(green[j], slope, shift), least, most)
        blue[j] = _clipped(_scaled(blue[j], slope, shift), least, most)


@native
def jittered(
    x: Address,
    counter: Address,
    y: Address,
    n: int,
    node: int,
    channels: int,
    size: int,
    octet: bool,
    weights: Doubles,
    brightness: float,
    contrast: float,
    saturation: float,
    least: Single,
    most: Single,
) -> None:
    """y = x with random brightness, contrast and saturation; x is uint8 where `octet`."""
    values = channels * size
    for i in range(n):
        w = first_block(counter, i, node)
        f = _f(_factor(brightness, w[0]))
        y_row = row_at(y, i, values)
        if octet:
            _toned(octets(x + i * values, values), y_row, weights, size, f, contrast, w[1], least, most)
        else:
            _toned(row_at(x, i, values), y_row, weights, size, f, contrast, w[1], least, most)
        if saturation != 0.0:
            _saturated(y_row, size, _factor(saturation, w[2]), least, most)


def of_pixels(ours: Binding, other: Binding) -> Binding:
    """The first where pixels are uint8 or float32, else the other."""
    return lambda call: (ours if call.x0.dtype in (np.uint8, np.float32) else other)(call)


def forward(call: Call) -> Run:
    x = call.x0
    op = call.op
    n, channels, *rest = x.shape
    least, most = (-math.inf, math.inf) if op.limit is None else (0.0, op.limit)
    return jittered.on(
        call,
        n=n,
        node=stream(call.name),
        channels=channels,
        size=math.prod(rest),
        octet=x.dtype == np.uint8,
        weights=np.array(colour.grey_weights(channels)),
        least=least,
        most=most,
    )


KERNELS = {
    # NumPy's scratch for its kernel: with pixels that are neither uint8 nor float32
    Jitter: Kernel(of_pixels(forward, colour.forward), buffers=colour.buffers)
}
