"""Augmentation of colours: brightness, contrast and saturation of every image by factors at random."""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Call, Kernel, Op, Run, Shape, Shapes, Tensor, binds

from .cast import cast
from .dropout import check_counter, counter_of
from .philox import draw, draw_specs
from .window import check_images

__all__ = ["Jitter", "jitter"]
LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue are (ITU-R BT.601)


class Jitter(Op):
    """y[n] = x[n] with a brightness, contrast and saturation of its own, in this order (torchvision's draws it anew).

    Brightness is f x; contrast is f x + (1 - f) times the mean grey of the image; saturation, of 3 channels only, is
    f x + (1 - f) times the grey of the pixel. Grey weighs 3 channels by LUMA, any others alike. Each f is drawn evenly
    from [max(0, 1 - s), 1 + s], s being the setting: max(0, 1 - s) + width w / 2^32, w the first three words of the
    sample's Philox block, counter (0, sample low, sample high, epoch), key (seed, the node's stream).

    x (batch, channels, height, width) may be uint8, y is of the plan's precision: nothing is rounded to whole numbers.
    After each of the three values are clipped to [0, `limit`], not at all where that is None. There is no gradient.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    limit: float | None = None
    kind = "jitter"
    integers = (0, 1)
    differentiable = None

    def infer(self, x: Shape, counter: Shape) -> Shape:
        check_counter(x, counter)
        check_images(x)
        for name in ("brightness", "contrast", "saturation"):
            if getattr(self, name) < 0:
                raise ShapeError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.saturation and x[1] != len(LUMA):
            raise ShapeError(f"saturation is of {len(LUMA)} channels, got {x[1]}")
        return x


def jitter(
    x: Tensor, *, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, name: str | None = None
) -> Tensor:
    """x (n, c, h, w) -> the same shape as floats, clipped to [0, 255] if x is uint8; in evaluation x.

    Floats have no known range, so they are not clipped.
    """
    if not x.graph.training:
        return cast(x)
    return Jitter(brightness, contrast, saturation, 255.0 if x.dtype == "uint8" else None)(x, counter_of(x), name=name)


# The reference kernels: an image after the other, in place in y.


def buffers(op: Jitter, shapes: Shapes) -> Buffers:
    n, channels, *rest = shapes.y
    grey = {"grey": ((2, *rest), FLOAT)} if op.saturation else {}
    sums = {"sums": ((channels,), "float64")} if op.contrast else {}
    return Buffers(forward={**draw_specs(n), **grey, **sums})


def factor(spread: float, word: float) -> float:
    """The number in [max(0, 1 - spread), 1 + spread] that a word of 32 bits stands for."""
    least = max(0.0, 1.0 - spread)
    return least + (1.0 + spread - least) * (word * 2.0**-32)


def grey_weights(channels: int) -> tuple[float, ...]:
    """The weight of each channel in an image's grey."""
    return LUMA if channels == len(LUMA) else (1.0 / channels,) * channels


@binds
def forward(
    call: Call,
    op: Jitter,
    x: Array,
    counter: Array,
    y: Array,
    words: Array,
    grey: Array | None = None,
    sums: Array | None = None,
) -> Run:
    fill = draw(call, counter)
    weights = grey_weights(x.shape[1])
    size = x.shape[2] * x.shape[3]

    def clip(image: Array) -> None:
        if op.limit is not None:
            np.maximum(image, 0, out=image)
            np.minimum(image, op.limit, out=image)

    def contrast(image: Array, f: float) -> None:
        """Sums of uint8 are exact up to a million pixels: float32 products of integers below 256."""
        mean = 0.0
        assert sums is not None
        np.add.reduce(image.reshape(len(image), -1), axis=1, dtype=np.float64, out=sums)
        for weight, total in zip(weights, sums, strict=True):
            mean += weight * float(total)
        image *= f
        image += (1.0 - f) * (mean / size)

    def saturation(image: Array, f: float) -> None:
        assert grey is not None
        total, part = grey
        np.multiply(image[0], weights[0], out=total)
        for channel in (1, 2):
            np.multiply(image[channel], weights[channel], out=part)
            total += part
        total *= 1.0 - f
        image *= f
        image += total

    def run() -> None:
        fill()
        np.copyto(y, x)
        for n, image in enumerate(y):
            image *= factor(op.brightness, int(words[0, n]))
            clip(image)
            if op.contrast:
                contrast(image, factor(op.contrast, int(words[1, n])))
                clip(image)
            if op.saturation:
                saturation(image, factor(op.saturation, int(words[2, n])))
                clip(image)

    return run


KERNELS = {Jitter: Kernel(forward, None, buffers)}
