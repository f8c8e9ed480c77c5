"""The settings of what stands in front of a net and behind it in training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from mpibow.bounds import Above, AtLeast, AtMost, Below
from mpibow.errors import ConfigError

Share = Annotated[float, Above(0), AtMost(1)]
Ratio = Annotated[float, Above(0)]
ASPECT = (3 / 4, 4 / 3)  # Szegedy et al., arXiv:1409.4842

Normalisation = Literal["channel", "pixel", "half", "none"]


@dataclass(frozen=True)
class Jitter:
    """Of colours, in this order. A factor is drawn evenly from [max(0, 1 - s), 1 + s], s being the setting."""

    brightness: Annotated[float, AtLeast(0), "how far from 1 a random factor of the brightness may be"] = 0.0
    contrast: Annotated[float, AtLeast(0), "how far from 1 a random factor of the contrast may be"] = 0.0
    saturation: Annotated[float, AtLeast(0), "the same of the saturation, for images of 3 channels"] = 0.0


@dataclass(frozen=True)
class Augmentation:
    """Of training images, anew in every epoch: all random numbers are a pure function of (seed, epoch, sample)."""

    area: Annotated[
        tuple[Share, Share] | None,
        "of encoded images a random window, resized: its share of the image's area; null is the evaluation's window",
    ] = None
    aspect: Annotated[tuple[Ratio, Ratio], "width / height of that window"] = ASPECT
    pad: Annotated[int, AtLeast(0), "zeros on every side of an image, of which a random window is cropped"] = 0
    crop: Annotated[
        Annotated[int, AtLeast(1)] | None,
        "height and width of the window, in evaluation the centre; null is the whole image's",
    ] = None
    flip: Annotated[bool, "flip left to right with probability 1/2"] = False
    cutout: Annotated[
        Annotated[int, AtLeast(1)] | None,
        "side of a square anywhere in the normalised image whose values become 0, the mean",
    ] = None
    jitter: Jitter | None = field(default_factory=Jitter)
    mixup: Annotated[
        Annotated[float, Above(0), AtMost(100)] | None,
        "mix each sample with another of its batch, by shares of Beta(mixup, mixup)",
    ] = None

    def __post_init__(self) -> None:
        for name, limits in (("area", self.area), ("aspect", self.aspect)):
            if limits is not None and limits[0] > limits[1]:
                raise ConfigError(f"{name}: must be a list of two numbers that does not fall, got {list(limits)}")
        if self.area is None and self.aspect != ASPECT:
            raise ConfigError(f"aspect: is of the window that area asks for, got {list(self.aspect)} with area null")

    @property
    def of_places(self) -> bool:
        """Whether a window is taken at random."""
        return self.pad > 0 or self.crop is not None or self.flip

    @property
    def of_colours(self) -> bool:
        return self.jitter not in (None, Jitter())

    @property
    def of_images(self) -> bool:
        """Whether anything of it needs height and width."""
        return self.of_places or self.of_colours or self.cutout is not None


@dataclass(frozen=True)
class Loss:
    """Of training. The loss of an evaluation is the plain cross-entropy."""

    smoothing: Annotated[float, AtLeast(0), Below(1), "share of the target spread evenly over all classes"] = 0.0
    ignore: Annotated[
        Annotated[int, AtLeast(-(2**31))] | None,
        "a label whose samples teach nothing, and are left out of an evaluation: a class, or in arrays -100 or another "
        "number below 0",
    ] = None
