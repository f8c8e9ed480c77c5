"""The settings of what stands in front of a net in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mpibow.bounds import AtLeast


@dataclass(frozen=True)
class Augmentation:
    """Of images (channels, height, width), anew in every epoch; a pure function of (seed, epoch, sample)."""

    pad: Annotated[int, AtLeast(0), "zeros on every side of an image, of which a random window is cropped"] = 0
    crop: Annotated[
        Annotated[int, AtLeast(1)] | None,
        "height and width of the window, in evaluation the centre; null is the whole image's",
    ] = None
    flip: Annotated[bool, "flip left to right with probability 1/2"] = False
