"""Augmentation of colours: brightness, contrast and saturation of every image by factors at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor
from mpibow.ops.dropout import counter_of

LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue are (ITU-R BT.601)


@dataclass(frozen=True)
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
    kind: ClassVar[str] = "jitter"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        x, counter = shapes
        if counter != (x[0], 4):
            raise ShapeError("the counter must be (batch, 4)")
        if len(x) != 4:
            raise ShapeError("input must be (batch, channels, height, width)")
        for name in ("brightness", "contrast", "saturation"):
            if getattr(self, name) < 0:
                raise ShapeError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.saturation and x[1] != len(LUMA):
            raise ShapeError(f"saturation is of {len(LUMA)} channels, got {x[1]}")
        return x


def jitter(
    x: Tensor, *, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, name: str | None = None
) -> Tensor:
    """x (n, c, h, w) -> the same shape as floats, clipped to [0, 255] where x is uint8; for a training graph only.

    Other numbers have no range that is known: they are not clipped.
    """
    op = Jitter(brightness, contrast, saturation, 255.0 if x.dtype == "uint8" else None)
    return x.graph.add(op, x, counter_of(x), name=name)
