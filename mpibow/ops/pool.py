"""Max pooling, and windows over images."""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Kernel, Op, Run, Shape, Shapes, Tensor, binds

from .window import Pair, pair, window_shape

__all__ = ["MaxPool2d", "max_pool2d"]


class Pool(Op):
    """`ceil` lets the last window hang over the end."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil: bool = False

    def infer(self, x: Shape) -> Shape:
        sides = window_shape(x, self.kernel, self.stride, self.padding, ceil=self.ceil)
        if any(2 * pad > side for pad, side in zip(self.padding, self.kernel, strict=True)):
            # else a window could lie outside the image
            raise ShapeError(f"padding {self.padding} must be at most half of kernel {self.kernel}")
        return (*x[:2], *sides)


class MaxPool2d(Pool):
    """y[n, c, i, j] = the largest of a window of x; its gradient goes to the first of equals, row by row.

    Padding never wins.
    """

    kind = "max_pool"


def max_pool2d(
    x: Tensor,
    kernel: int | Pair,
    *,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    ceil: bool = False,
    name: str | None = None,
) -> Tensor:
    """x (n, c, h, w) -> (n, c, h', w'); stride defaults to the kernel. As in PyTorch; `ceil` is its ceil_mode."""
    return MaxPool2d(pair(kernel), pair(kernel if stride is None else stride), pair(padding), ceil)(x, name=name)


# The reference kernels: one window element at a time: each is a strided view of the image.

Part = tuple[slice, slice]


def _reach(place: int, pad: int, stride: int, extent: int, count: int) -> tuple[slice, slice]:
    """The windows, of `count`, whose element at place - pad + stride i is in [0, extent), and that element's places."""
    offset = place - pad
    first = max(0, -(offset // stride))
    last = min(count - 1, (extent - 1 - offset) // stride)
    if last < first:
        return slice(0, 0), slice(0, 0)
    return slice(first, last + 1), slice(offset + stride * first, offset + stride * last + 1, stride)


def elements_of(op: Pool, image: Array, y: Shape) -> list[tuple[int, Part, Array]]:
    """For every element of the window, row by row: its number, the part of y (n, c, rows, columns) whose windows
    have it inside the image, and its values, a view of image (n, c, h, w). Elements always outside are left out.
    """
    found = []
    for number, element in enumerate(np.ndindex(*op.kernel)):
        sides = map(_reach, element, op.padding, op.stride, image.shape[2:], y[2:])
        (rows, from_rows), (columns, from_columns) = sides
        if rows.stop and columns.stop:
            found.append((number, (rows, columns), image[:, :, from_rows, from_columns]))
    return found


def max_buffers(op: MaxPool2d, shapes: Shapes) -> Buffers:
    mask = {"mask": (shapes.y, "bool")}
    return Buffers(saved={"winner": (shapes.y, "uint16")}, forward=mask, backward={**mask, "part": (shapes.y, FLOAT)})


@binds
def max_forward(op: MaxPool2d, x: Array, y: Array, winner: Array, mask: Array) -> Run:
    first = np.zeros(y.shape[2:], winner.dtype)  # the first element of each window that is inside the image
    elements = elements_of(op, x, y.shape)
    for number, part, _ in reversed(elements):
        first[..., *part] = number
    numbered = [
        (number, element, y[..., *part], winner[..., *part], mask[..., *part]) for number, part, element in elements
    ]

    def run() -> None:
        y.fill(-np.inf)
        np.copyto(winner, first)
        for number, element, target, won, better in numbered:
            np.greater(element, target, out=better)
            np.copyto(won, number, where=better)
            np.maximum(target, element, out=target)  # maximum, unlike a masked copy, lets NaN through

    return run


@binds
def max_backward(op: MaxPool2d, dy: Array, dx: Array, winner: Array, mask: Array, part: Array) -> Run:
    numbered = [
        (number, element, dy[..., *cut], winner[..., *cut], mask[..., *cut], part[..., *cut])
        for number, cut, element in elements_of(op, dx, dy.shape)
    ]

    def run() -> None:
        dx.fill(0)
        for number, element, source, won, here, share in numbered:
            np.equal(won, number, out=here)
            np.multiply(source, here, out=share)
            element += share

    return run


KERNELS = {MaxPool2d: Kernel(max_forward, max_backward, max_buffers)}
