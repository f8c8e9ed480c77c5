"""Two-dimensional convolution (cross-correlation, as everywhere in deep learning)."""

from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mpibow.errors import ShapeError
from mpibow.graph import (
    FLOAT,
    Array,
    Buffers,
    Initialiser,
    Kernel,
    Op,
    Run,
    Shape,
    Shapes,
    Tensor,
    Weight,
    Weights,
    binds,
)

from .initialisers import ZERO, He
from .moves import Pairs
from .reshape import reshape
from .window import Pair, pair, window_shape

__all__ = ["Conv2d", "conv1d", "conv2d"]


class Convolution(Op):
    """Both ways: a weight (rows, columns, *kernel) for each of `groups` groups of channels, and a bias."""

    channels: int
    kernel: Pair
    stride: Pair
    padding: Pair
    bias: bool
    initial: Initialiser
    groups: int = 1
    dilation: Pair = (1, 1)
    initial_bias: Initialiser = ZERO
    reads = "xw"

    def check_groups(self, channels: int) -> None:
        if self.groups < 1 or channels % self.groups or self.channels % self.groups:
            raise ShapeError(
                f"groups must divide the {channels} channels of the input and the {self.channels} of the output, "
                f"got {self.groups}"
            )

    def weights_of(self, rows: int, columns: int, fan_in: int, fan_out: int) -> dict[str, Weight]:
        """A weight (rows, columns, *kernel); the fans are channels, each times an area."""
        fans = fan_in * prod(self.kernel), fan_out * prod(self.kernel)
        weights = {"weight": Weight((rows, columns, *self.kernel), self.initial, *fans)}
        if self.bias:
            weights["bias"] = Weight((self.channels,), self.initial_bias, *fans, decay=False)
        return weights

    def windows(self, image: Array, rows: int, columns: int) -> Array:
        """image (c, h, w, n) as (c, kh, kw, rows, columns, n): every window, overlapping where the kernel does."""
        c, _, _, n = image.shape
        sc, sh, sw, sn = image.strides
        down, across = self.dilation
        step_h, step_w = self.stride
        shape = (c, *self.kernel, rows, columns, n)
        return as_strided(image, shape, (sc, sh * down, sw * across, sh * step_h, sw * step_w, sn))

    def pairs(self, windows: Array, parts: Array) -> Pairs:
        """One pair of views per kernel element: windows of one element never overlap, so += is safe."""
        return [(windows[:, a, b], parts[:, a, b]) for a, b in np.ndindex(*self.kernel)]


class Conv2d(Convolution):
    """y[n, o, i, j] = bias[o] + sum over c, a, b of
    weight[o, c, a, b] * padded x[n, c, i stride + a dilation, j stride + b dilation].

    With g groups, output channels o of the q-th g-th read the q-th g-th of the input channels only: c counts in there.
    """

    kind = "conv"

    def infer(self, x: Shape) -> Shape:
        sides = window_shape(x, self.kernel, self.stride, self.padding, self.dilation)
        self.check_groups(x[1])
        return x[0], self.channels, *sides

    def weights(self, x: Shape) -> Weights:
        channels = x[1] // self.groups
        return self.weights_of(self.channels, channels, channels, self.channels)  # fans as PyTorch's


def conv2d(
    x: Tensor,
    channels: int,
    kernel: int | Pair,
    *,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
    bias: bool = True,
    initial: Initialiser | None = None,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, c, h, w) -> (n, channels, h', w'), h' = (h + 2 padding - reach) // stride + 1.

    reach = dilation (kernel - 1) + 1. weight is (channels, c / groups, *kernel); groups = c is a depthwise convolution.
    Weights start as `initial` (He), the bias as `initial_bias` (0).
    """
    if channels < 1:
        raise ShapeError(f"conv2d of {x.name}: channels must be at least 1, got {channels}")
    op = Conv2d(
        channels,
        pair(kernel),
        pair(stride),
        pair(padding),
        bias,
        He() if initial is None else initial,
        groups,
        pair(dilation),
        initial_bias,
    )
    return op(x, name=name)


def conv1d(
    x: Tensor,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
    initial: Initialiser | None = None,
    name: str | None = None,
) -> Tensor:
    """x (n, c, l) -> (n, channels, l'): conv2d of images of one row, so weight is (channels, c / groups, 1, kernel)."""
    if x.ndim != 3:
        raise ShapeError(f"conv1d of {x.name} {x.shape}: input must be (batch, channels, length)")
    n, c, length = x.shape
    y = conv2d(
        reshape(x, (n, c, 1, length)),
        channels,
        (1, kernel),
        stride=(1, stride),
        padding=(0, padding),
        dilation=(1, dilation),
        groups=groups,
        bias=bias,
        initial=initial,
        name=name,
    )
    return reshape(y, (*y.shape[:2], y.shape[3]))


# The reference kernels: one matrix product a group over columns, images innermost so that copies run over long
# stretches.
#
# With t for "image index last": xt (c, h, w, n); with g groups, its products are of weight (g, o / g, c / g * kh * kw),
# columns (g, c / g * kh * kw, h' * w' * n) and yt (g, o / g, h' * w' * n).


def buffers(op: Conv2d, shapes: Shapes) -> Buffers:
    n, c, h, w = shapes.x[0]
    o, rows, columns = shapes.y[1:]
    padded = ((c, h + 2 * op.padding[0], w + 2 * op.padding[1], n), FLOAT)
    g = op.groups
    cols = ((g, c // g * op.kernel[0] * op.kernel[1], rows * columns * n), FLOAT)
    product = ((g, o // g, rows * columns * n), FLOAT)
    return Buffers(
        saved={"cols": cols},
        forward={"xt": padded, "yt": product},
        backward={"dxt": padded, "dcols": cols, "dyt": product},
    )


def _inside(op: Conv2d, image: Array) -> Array:
    """The unpadded part of image (c, h, w, n), as (n, c, h, w)."""
    ph, pw = op.padding
    _, h, w, _ = image.shape
    return image[:, ph : h - ph, pw : w - pw].transpose(3, 0, 1, 2)


@binds
def forward(
    op: Conv2d, x: Array, y: Array, xt: Array, cols: Array, yt: Array, weight: Array, bias: Array | bool
) -> Run:
    """`bias` is the array, or False."""
    n, o, rows, columns = y.shape
    weight = weight.reshape(op.groups, o // op.groups, -1)
    windows = op.windows(xt, rows, columns)
    inside = _inside(op, xt)
    cols6 = cols.reshape(windows.shape)
    product = yt.reshape(o, rows, columns, n).transpose(3, 0, 1, 2)
    padded = max(op.padding) > 0
    bias4 = bias.reshape(1, -1, 1, 1) if isinstance(bias, np.ndarray) else 0.0

    def run() -> None:
        if padded:
            xt.fill(0)
        np.copyto(inside, x)
        np.copyto(cols6, windows)
        np.matmul(weight, cols, out=yt)
        np.add(product, bias4, out=y)

    return run


@binds
def backward(
    op: Conv2d,
    dy: Array,
    dx: Array | None,
    dxt: Array,
    dcols: Array,
    dyt: Array,
    cols: Array,
    weight: Array,
    dweight: Array | None = None,
    dbias: Array | None = None,
) -> Run:
    n, o, rows, columns = dy.shape
    grouped = (op.groups, o // op.groups, -1)
    weight = weight.reshape(grouped)
    dweight = None if dweight is None else dweight.reshape(grouped)
    weight_t = weight.transpose(0, 2, 1)
    cols_t = cols.transpose(0, 2, 1)
    flat = dyt.reshape(o, -1)
    dproduct = dyt.reshape(o, rows, columns, n).transpose(3, 0, 1, 2)
    windows = op.windows(dxt, rows, columns)
    dcols6 = dcols.reshape(windows.shape)
    inside = _inside(op, dxt)
    pairs = op.pairs(windows, dcols6)

    def run() -> None:
        np.copyto(dproduct, dy)
        if dweight is not None:
            np.matmul(dyt, cols_t, out=dweight)
        if dbias is not None:
            np.sum(flat, axis=1, out=dbias)
        if dx is not None:
            np.matmul(weight_t, dyt, out=dcols)
            dxt.fill(0)
            for target, source in pairs:
                target += source
            np.copyto(dx, inside)

    return run


KERNELS = {Conv2d: Kernel(forward, backward, buffers, inputs_alone=True)}
