"""Augmentation of places: a random window to train on, the centre to evaluate, a square that is cut out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor
from mpibow.ops.dropout import counter_of
from mpibow.ops.window import Pair


@dataclass(frozen=True)
class Augment(Op):
    """y[n] = a window of `crop` (height, width) in x[n] with `pad` zeros around it, flipped left to right or not.

    x is (batch, channels, height, width) of any dtype, which is y's as well; there is no gradient. The numbers are
    those of one Philox block w a sample, counter (0, sample low, sample high, epoch), key (seed, the node's stream):
    of the `places` (height + 2 pad - crop height + 1) for the window's top the one is w[0] places >> 32, likewise w[1]
    for its left, and it is flipped where w[2] >> 31 is 1.
    """

    pad: int
    crop: Pair
    flip: bool
    kind: ClassVar[str] = "augment"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        x, counter = shapes
        if counter != (x[0], 4):
            raise ShapeError("the counter must be (batch, 4)")
        if not 0 <= self.pad < min(self.crop):
            raise ShapeError(f"pad must be at least 0 and below the crop {self.crop}, got {self.pad}")
        return _cropped(x, self.crop)

    def dtype(self, *dtypes: str) -> str:
        return dtypes[0]


@dataclass(frozen=True)
class CentreCrop(Op):
    """y = the middle of x (batch, channels, height, width), `crop` (height, width) large; as Augment otherwise.

    The window's top is (height - crop height) // 2.
    """

    crop: Pair
    kind: ClassVar[str] = "centre_crop"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        return _cropped(shapes[0], self.crop)

    def dtype(self, *dtypes: str) -> str:
        return dtypes[0]


@dataclass(frozen=True)
class Cutout(Op):
    """y = x, but 0 in a square of side `length` in all channels (DeVries and Taylor, arXiv:1708.04552).

    Its centre lies anywhere in the image, its rows and columns outside the image are left out: with w the sample's
    Philox block as in Augment, the first row is (w[0] height >> 32) - length // 2, the first column is
    (w[1] width >> 32) - length // 2. x (batch, channels, height, width) is normalised already, so that 0 is grey.
    """

    length: int
    kind: ClassVar[str] = "cutout"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        x, counter = shapes
        if counter != (x[0], 4):
            raise ShapeError("the counter must be (batch, 4)")
        if len(x) != 4:
            raise ShapeError("input must be (batch, channels, height, width)")
        if self.length < 1:
            raise ShapeError(f"length must be at least 1, got {self.length}")
        return x


def _cropped(x: Shape, crop: Pair) -> Shape:
    if len(x) != 4:
        raise ShapeError("input must be (batch, channels, height, width)")
    if not (1 <= crop[0] <= x[2] and 1 <= crop[1] <= x[3]):
        raise ShapeError(f"crop {crop} must be at least 1 and at most the image's {x[2]}x{x[3]}")
    return (*x[:2], *crop)


def augment(
    x: Tensor, *, pad: int = 0, crop: Pair | None = None, flip: bool = False, name: str | None = None
) -> Tensor:
    """x (n, c, h, w) of any dtype -> (n, c, *crop), crop (h, w) unless given; for a training graph only."""
    size = crop or (x.shape[-2], x.shape[-1])
    return x.graph.add(Augment(pad, size, flip), x, counter_of(x), name=name)


def centre_crop(x: Tensor, crop: Pair, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) of any dtype -> (n, c, *crop)."""
    return x.graph.add(CentreCrop(crop), x, name=name)


def cutout(x: Tensor, length: int, *, name: str | None = None) -> Tensor:
    """x (n, c, h, w) -> the same shape, a square of it 0; for a training graph only."""
    return x.graph.add(Cutout(length), x, counter_of(x), name=name)
