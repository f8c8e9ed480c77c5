"""The settings of augmentation and normalisation."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from mpibow.bounds import AtMost, Count, Natural, NotNegative, Positive
from mpibow.errors import ConfigError

Share = Annotated[Positive, AtMost(1)]
ASPECT = (3 / 4, 4 / 3)  # Szegedy et al., arXiv:1409.4842

Normalisation = Literal["channel", "pixel", "half", "none"]


@dataclass(frozen=True)
class ColourJitter:
    """Random changes of colours, in this order. A setting s draws a factor evenly from [max(0, 1 - s), 1 + s]."""

    brightness: Annotated[NotNegative, "largest distance from 1 of the random factor of the brightness"] = 0.0
    contrast: Annotated[NotNegative, "largest distance from 1 of the random factor of the contrast"] = 0.0
    saturation: Annotated[
        NotNegative, "largest distance from 1 of the random factor of the saturation, with 3 channels"
    ] = 0.0


@dataclass(frozen=True)
class Augmentation:
    """Random changes of training images, new in every epoch: a pure function of (seed, epoch, sample)."""

    area: Annotated[
        tuple[Share, Share] | None,
        "random resized crop of encoded images: least and largest share of the image's area; null: the centre crop",
    ] = None
    aspect: Annotated[tuple[Positive, Positive], "least and largest width / height of that crop"] = ASPECT
    pad: Annotated[Natural, "pad every side of an image with so many zeros before the random crop"] = 0
    crop: Annotated[
        Count | None,
        "height and width of the random crop; evaluation takes the centre crop; null is the size of the image",
    ] = None
    flip: Annotated[bool, "flip left to right with probability 1/2"] = False
    cutout: Annotated[Count | None, "side of a random square of the normalised image that is set to 0, the mean"] = None
    jitter: ColourJitter | None = field(default_factory=ColourJitter)
    mixup: Annotated[
        Annotated[Positive, AtMost(100)] | None,
        "mix each sample with another of its batch; the shares follow Beta(mixup, mixup)",
    ] = None

    def __post_init__(self) -> None:
        for name, limits in (("area", self.area), ("aspect", self.aspect)):
            if limits is not None and limits[0] > limits[1]:
                raise ConfigError(f"{name}: must be a list of two numbers that does not fall, got {list(limits)}")
        if self.area is None and self.aspect != ASPECT:
            raise ConfigError(f"aspect: needs area, got {list(self.aspect)} with area null")

    @property
    def of_places(self) -> bool:
        """Whether a window is taken at random."""
        return self.pad > 0 or self.crop is not None or self.flip

    @property
    def of_colours(self) -> bool:
        return self.jitter not in (None, ColourJitter())

    @property
    def of_images(self) -> bool:
        """Whether any of the changes needs height and width."""
        return self.of_places or self.of_colours or self.cutout is not None
