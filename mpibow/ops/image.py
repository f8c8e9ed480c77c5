"""Stored images made a net's input: normalised, cropped and flipped at random, cropped in the middle, cut out."""

from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import Array, Buffers, Call, Kernel, Moving, Op, Run, Shape, Shapes, Tensor, binds, runs

from .dropout import check_counter, counter_of
from .philox import draw, draw_specs
from .window import Pair, check_images

__all__ = ["Augment", "CentreCrop", "Cutout", "Normalise", "augment", "centre_crop", "cutout", "normalise"]


class Augment(Moving):
    """y[n] = a window of `crop` (height, width) in x[n] with `pad` zeros around it, flipped left to right or not.

    x is (batch, channels, height, width) of any dtype, which is y's as well; there is no gradient. The numbers
    come from one Philox block w a sample, counter (0, sample low, sample high, epoch), key (seed, the node's stream):
    the window's top is w[0] places >> 32, of the `places` (height + 2 pad - crop height + 1); its left likewise by
    w[1]; it is flipped where w[2] >> 31 is 1.
    """

    pad: int
    crop: Pair
    flip: bool
    kind = "augment"
    differentiable = None

    def infer(self, x: Shape, counter: Shape) -> Shape:
        check_counter(x, counter)
        if not 0 <= self.pad < min(self.crop):
            raise ShapeError(f"pad must be at least 0 and below the crop {self.crop}, got {self.pad}")
        return _cropped(x, self.crop)


class CentreCrop(Moving):
    """y = the middle of x (batch, channels, height, width), `crop` (height, width) large; as Augment otherwise.

    The window's top is (height - crop height) // 2.
    """

    crop: Pair
    kind = "centre_crop"
    differentiable = None

    def infer(self, x: Shape) -> Shape:
        return _cropped(x, self.crop)


class Cutout(Op):
    """y = x, but 0 in a square of side `length` in all channels (DeVries and Taylor, arXiv:1708.04552).

    Its centre lies anywhere in the image, its rows and columns outside the image are left out: with w the sample's
    Philox block as in Augment, the first row is (w[0] height >> 32) - length // 2, the first column is
    (w[1] width >> 32) - length // 2. x (batch, channels, height, width) is normalised already, so that 0 is grey.
    """

    length: int
    kind = "cutout"
    integers = (1,)
    differentiable = None

    def infer(self, x: Shape, counter: Shape) -> Shape:
        check_counter(x, counter)
        check_images(x)
        if self.length < 1:
            raise ShapeError(f"length must be at least 1, got {self.length}")
        return x


def _cropped(x: Shape, crop: Pair) -> Shape:
    check_images(x)
    if not (1 <= crop[0] <= x[2] and 1 <= crop[1] <= x[3]):
        raise ShapeError(f"crop {crop} must be at least 1 and at most the image's {x[2]}x{x[3]}")
    return (*x[:2], *crop)


def augment(
    x: Tensor, *, pad: int = 0, crop: Pair | None = None, flip: bool = False, name: str | None = None
) -> Tensor:
    """Random crop and flip: x (n, c, h, w) -> (n, c, *crop), by default (h, w); in evaluation the middle."""
    crop = crop or (x.shape[-2], x.shape[-1])
    if not x.graph.training:
        return centre_crop(x, crop, name=name)
    return Augment(pad, crop, flip)(x, counter_of(x), name=name)


def centre_crop(x: Tensor, crop: Pair, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) of any dtype -> (n, c, *crop)."""
    return CentreCrop(crop)(x, name=name)


def cutout(x: Tensor, length: int, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> the same shape, with a random square set to 0; in evaluation x."""
    return Cutout(length)(x, counter_of(x), name=name) if x.graph.training else x


class Normalise(Op):
    """y = (x - mean) / std; x may be uint8, y is of the plan's precision. It has no gradient.

    `std` is one number a channel (axis 1), `mean` as well, or one for every value of a sample, in C order.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    kind = "normalise"
    integers = (0,)
    differentiable = None

    def infer(self, x: Shape) -> Shape:
        if len(x) < 2 or len(self.mean) not in (x[1], prod(x[1:])) or len(self.std) != x[1]:
            raise ShapeError(
                f"{len(self.mean)} means and {len(self.std)} standard deviations must be one a channel, "
                "or means one a value"
            )
        if min(self.std) <= 0:
            raise ShapeError(f"standard deviations must be above 0, got {min(self.std)}")
        return x


def normalise(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...], *, name: str | None = None) -> Tensor:
    """x (n, c, ...) of any dtype -> (x - mean) / std; `mean` has a number per channel or per value of a sample."""
    return Normalise(tuple(mean), tuple(std))(x, name=name)


# The reference kernels.


def augment_buffers(op: Augment | Cutout, shapes: Shapes) -> Buffers:
    return Buffers(forward=draw_specs(shapes.y[0]))


@binds
def augment_forward(call: Call, x: Array, counter: Array, y: Array, words: Array, pad: int, flip: bool) -> Run:
    fill = draw(call, counter)
    height, width = x.shape[2:]
    rows, columns = y.shape[2:]
    tops = height + 2 * pad - rows + 1
    lefts = width + 2 * pad - columns + 1

    def run() -> None:
        fill()
        if pad:
            y.fill(0)
        for n in range(len(x)):
            top = (int(words[0, n]) * tops >> 32) - pad  # of the window, in the image
            left = (int(words[1, n]) * lefts >> 32) - pad
            target = y[n, :, :, ::-1] if flip and words[2, n] >> 31 else y[n]
            # rows a to b and columns c to d of the window lie in the image
            a = max(-top, 0)
            b = min(rows, height - top)
            c = max(-left, 0)
            d = min(columns, width - left)
            np.copyto(target[:, a:b, c:d], x[n, :, a + top : b + top, c + left : d + left])

    return run


@runs
def centre_forward(x: Array, y: Array) -> None:
    rows, columns = y.shape[2:]
    top = (x.shape[2] - rows) // 2
    left = (x.shape[3] - columns) // 2
    np.copyto(y, x[:, :, top : top + rows, left : left + columns])


@binds
def cutout_forward(call: Call, x: Array, counter: Array, y: Array, words: Array, length: int) -> Run:
    fill = draw(call, counter)
    height, width = x.shape[2:]

    def run() -> None:
        fill()
        np.copyto(y, x)
        for n in range(len(x)):
            top = (int(words[0, n]) * height >> 32) - length // 2
            left = (int(words[1, n]) * width >> 32) - length // 2
            y[n, :, max(top, 0) : top + length, max(left, 0) : left + length] = 0

    return run


@binds
def normalise_forward(x: Array, y: Array, mean: tuple[float, ...], std: tuple[float, ...]) -> Run:
    shape = (-1, *[1] * (x.ndim - 2))
    means = np.array(mean, y.dtype).reshape(shape if len(mean) == x.shape[1] else x.shape[1:])
    scale = (1.0 / np.array(std, np.float64)).astype(y.dtype).reshape(shape)

    def run() -> None:
        nonlocal y
        np.subtract(x, means, out=y)
        y *= scale

    return run


KERNELS = {
    Augment: Kernel(augment_forward, None, augment_buffers),
    CentreCrop: Kernel(centre_forward),
    Cutout: Kernel(cutout_forward, None, augment_buffers),
    Normalise: Kernel(normalise_forward),
}
