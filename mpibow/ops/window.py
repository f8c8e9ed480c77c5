"""The arithmetic of windows that slide over an image: convolution and pooling share it."""

from numbers import Integral

from mpibow.errors import ShapeError
from mpibow.graph import Shape

Pair = tuple[int, int]


def pair(value: int | Pair) -> Pair:
    """(value, value) for a number; height before width. Raises ShapeError for what is neither."""
    if isinstance(value, Integral):
        return int(value), int(value)
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ShapeError(f"kernel, stride, padding and dilation are a number or two, got {value!r}")
    return value[0], value[1]


def check_images(x: Shape) -> None:
    if len(x) != 4:
        raise ShapeError("input must be (batch, channels, height, width)")


def window_shape(
    x: Shape, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1), ceil: bool = False
) -> Pair:
    """How many windows fit, down and across, into x (n, c, h, w).

    With `ceil` a window may hang over the end if it starts inside the image or its padding in front: PyTorch's rule.
    """
    check_images(x)
    if min(kernel) < 1 or min(stride) < 1 or min(padding) < 0:
        raise ShapeError(f"kernel {kernel} and stride {stride} must be at least 1, padding {padding} at least 0")
    if min(dilation) < 1:
        raise ShapeError(f"dilation {dilation} must be at least 1")
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    padded = (x[2] + 2 * padding[0], x[3] + 2 * padding[1])
    rooms = [extent - window for extent, window in zip(padded, reach, strict=True)]
    if any(room < 0 and not (ceil and -room < step) for room, step in zip(rooms, stride, strict=True)):
        raise ShapeError(f"a window of {reach[0]}x{reach[1]} does not fit into {padded[0]}x{padded[1]}")
    rows, columns = (
        (min(-(-room // step), (extent - pad - 1) // step) if ceil else room // step) + 1
        for room, step, extent, pad in zip(rooms, stride, padded, padding, strict=True)
    )
    return rows, columns
