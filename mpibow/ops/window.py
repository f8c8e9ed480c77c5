"""The arithmetic of windows that slide over an image: convolution and pooling share it."""

from __future__ import annotations

from mpibow.errors import ShapeError
from mpibow.graph.graph import Shape

Pair = tuple[int, int]


def pair(value: int | Pair) -> Pair:
    """(value, value) for a number; height before width."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def window_shape(x: Shape, kernel: Pair, stride: Pair, padding: Pair) -> Pair:
    """How many windows fit, down and across, into x (n, c, h, w)."""
    if len(x) != 4:
        raise ShapeError("input must be (batch, channels, height, width)")
    if min(kernel) < 1 or min(stride) < 1 or min(padding) < 0:
        raise ShapeError(f"kernel {kernel} and stride {stride} must be at least 1, padding {padding} at least 0")
    padded = (x[2] + 2 * padding[0], x[3] + 2 * padding[1])
    if kernel[0] > padded[0] or kernel[1] > padded[1]:
        raise ShapeError(f"a window of {kernel[0]}x{kernel[1]} does not fit into {padded[0]}x{padded[1]}")
    return (padded[0] - kernel[0]) // stride[0] + 1, (padded[1] - kernel[1]) // stride[1] + 1
