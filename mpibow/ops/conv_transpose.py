"""Transposed convolution: the gradient of a convolution by its input, as a layer."""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Initialiser, Kernel, Run, Shape, Shapes, Tensor, Weights, binds

from .conv import Convolution
from .initialisers import He
from .window import Pair, check_images, pair

__all__ = ["ConvTranspose2d", "conv_transpose2d"]


class ConvTranspose2d(Convolution):
    """y[n, o] = bias[o] + over c, i and j: x[n, c, i, j] weight[c, o], laid from (i, j) stride - padding on, elements
    of the weight `dilation` apart.

    With g groups, the q-th g-th of the input channels makes the q-th g-th of the output channels: o counts in there.
    """

    output_padding: Pair = (0, 0)
    kind = "conv_transpose"

    def infer(self, x: Shape) -> Shape:
        check_images(x)
        if min(*self.kernel, *self.stride, *self.dilation) < 1 or min(*self.padding, *self.output_padding) < 0:
            raise ShapeError(
                f"kernel {self.kernel}, stride {self.stride} and dilation {self.dilation} must be at least 1, "
                "paddings at least 0"
            )
        if any(more >= step for more, step in zip(self.output_padding, self.stride, strict=True)):
            raise ShapeError(f"output_padding {self.output_padding} must be below stride {self.stride}")
        self.check_groups(x[1])
        sides = zip(x[2:], self.reach, self.stride, self.padding, self.output_padding, strict=True)
        rows, columns = ((side - 1) * step - 2 * pad + k + more for side, k, step, pad, more in sides)
        if min(rows, columns) < 1:
            raise ShapeError(f"padding {self.padding} leaves nothing of the output")
        return x[0], self.channels, rows, columns

    @property
    def reach(self) -> Pair:
        """Rows and columns of the output that an element of the input reaches."""
        rows, columns = self.kernel
        down, across = self.dilation
        return down * (rows - 1) + 1, across * (columns - 1) + 1

    def weights(self, x: Shape) -> Weights:
        channels = x[1]
        own = self.channels // self.groups
        return self.weights_of(channels, own, channels // self.groups, own)


def conv_transpose2d(
    x: Tensor,
    channels: int,
    kernel: int | Pair,
    *,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    output_padding: int | Pair = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
    bias: bool = True,
    initial: Initialiser | None = None,
    name: str | None = None,
) -> Tensor:
    """x (n, c, h, w) -> (n, channels, h', w'), h' = (h - 1) stride - 2 padding + reach + output_padding.

    reach = dilation (kernel - 1) + 1. weight is (c, channels / groups, *kernel), as in PyTorch, and starts as
    `initial`, by default He; the bias starts at 0.
    """
    if channels < 1:
        raise ShapeError(f"conv_transpose2d of {x.name}: channels must be at least 1, got {channels}")
    op = ConvTranspose2d(
        channels,
        pair(kernel),
        pair(stride),
        pair(padding),
        bias,
        He() if initial is None else initial,
        groups,
        pair(dilation),
        output_padding=pair(output_padding),
    )
    return op(x, name=name)


# The reference kernels: a product a group. Images are innermost: xt (g, c / g, h w n), columns (g, o / g kh kw, h w n),
# and y with its padding (o, height, width, n).


def buffers(op: ConvTranspose2d, shapes: Shapes) -> Buffers:
    n, c, h, w = shapes.x[0]
    g = op.groups
    sides = (
        max((side - 1) * step + k, out + 2 * pad)
        for side, step, k, out, pad in zip((h, w), op.stride, op.reach, shapes.y[2:], op.padding, strict=True)
    )
    xt = ((g, c // g, h * w * n), FLOAT)
    columns = ((g, op.channels // g * op.kernel[0] * op.kernel[1], h * w * n), FLOAT)
    scratch = {"xt": xt, "columns": columns, "whole": ((op.channels, *sides, n), FLOAT)}
    return Buffers(forward=scratch, backward={**scratch, "dxt": xt})


def _inside(op: ConvTranspose2d, whole: Array, y: Array) -> Array:
    """The part of whole that becomes y (n, o, rows, columns), in y's order."""
    top, left = op.padding
    rows, columns = y.shape[2:]
    return whole[:, top : top + rows, left : left + columns].transpose(3, 0, 1, 2)


def _by_group(op: ConvTranspose2d, weight: Array) -> Array:
    """(g, c / g, o / g kh kw)."""
    return weight.reshape(op.groups, weight.shape[0] // op.groups, -1)


@binds
def forward(
    op: ConvTranspose2d, x: Array, y: Array, xt: Array, columns: Array, whole: Array, weight: Array, bias: Array | bool
) -> Run:
    """`bias` is the array, or False."""
    n, c, h, w = x.shape
    weight = np.swapaxes(_by_group(op, weight), 1, 2)
    inside = _inside(op, whole, y)
    x4 = xt.reshape(c, h, w, n).transpose(3, 0, 1, 2)
    windows = op.windows(whole, h, w)
    pairs = op.pairs(windows, columns.reshape(windows.shape))
    bias4 = bias.reshape(1, -1, 1, 1) if isinstance(bias, np.ndarray) else 0.0

    def run() -> None:
        np.copyto(x4, x)
        np.matmul(weight, xt, out=columns)
        whole.fill(0)
        for target, source in pairs:
            target += source
        np.add(inside, bias4, out=y)

    return run


@binds
def backward(
    op: ConvTranspose2d,
    x: Array,
    dy: Array,
    dx: Array | None,
    xt: Array,
    columns: Array,
    whole: Array,
    dxt: Array,
    weight: Array,
    dweight: Array,
    dbias: Array | None = None,
) -> Run:
    n, c, h, w = x.shape
    weight = _by_group(op, weight)
    dweight = _by_group(op, dweight)
    inside = _inside(op, whole, dy)
    windows = op.windows(whole, h, w)
    parts = columns.reshape(windows.shape)
    columns_t = np.swapaxes(columns, 1, 2)
    x4, dx4 = (array.reshape(c, h, w, n).transpose(3, 0, 1, 2) for array in (xt, dxt))

    def run() -> None:
        np.copyto(x4, x)
        whole.fill(0)
        np.copyto(inside, dy)
        np.copyto(parts, windows)
        np.matmul(xt, columns_t, out=dweight)
        if dbias is not None:
            np.sum(dy, axis=(0, 2, 3), out=dbias)
        if dx is not None:
            np.matmul(weight, columns, out=dxt)
            np.copyto(dx, dx4)

    return run


KERNELS = {ConvTranspose2d: Kernel(forward, backward, buffers)}
