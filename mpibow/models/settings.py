"""The settings of augmentation, normalisation, loss, and of weights to start from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from mpibow.bounds import AtLeast, AtMost, Below, Count, Natural, NotEmpty, NotNegative, Positive, Text
from mpibow.errors import ConfigError

Share = Annotated[Positive, AtMost(1)]
BALANCED: Literal["balanced"] = "balanced"  # weights of classes by their counts
ASPECT = (3 / 4, 4 / 3)  # Szegedy et al., arXiv:1409.4842

Normalisation = Literal["channel", "pixel", "half", "none"]


@dataclass(frozen=True)
class Jitter:
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
    cutout: Annotated[
        Count | None,
        "side of a random square of the normalised image that is set to 0, the mean",
    ] = None
    jitter: Jitter | None = field(default_factory=Jitter)
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
        return self.jitter not in (None, Jitter())

    @property
    def of_images(self) -> bool:
        """Whether any of the changes needs height and width."""
        return self.of_places or self.of_colours or self.cutout is not None


@dataclass(frozen=True)
class CrossEntropyLoss:
    """Cross-entropy of logits and classes. For data with classes the settings are for training: evaluation is plain."""

    name: Literal["cross_entropy"] = field(default="cross_entropy", kw_only=True)
    label_smoothing: Annotated[NotNegative, Below(1), "share of the target that is spread evenly over all classes"] = (
        0.0
    )
    ignore_index: Annotated[
        Annotated[int, AtLeast(-(2**31))] | None,
        "label of samples that training and evaluation leave out: a class or, in arrays, a number below 0 such as -100",
    ] = None
    weight: Annotated[
        Literal["balanced"] | Annotated[tuple[NotNegative, ...], NotEmpty()] | None,
        "weight of each class in the mean, one number per class; balanced: by their counts; null: all the same",
    ] = None


@dataclass(frozen=True)
class HuberLoss:
    """Squares of differences up to delta, beyond it their size."""

    name: Literal["huber_loss"] = field(default="huber_loss", kw_only=True)
    delta: Annotated[Positive, "difference above which the loss is linear"] = 1.0


@dataclass(frozen=True)
class PlainLoss:
    """A loss without settings."""

    name: Literal["mse_loss", "l1_loss", "binary_cross_entropy_with_logits"] = field(default="mse_loss", kw_only=True)


Loss = CrossEntropyLoss | HuberLoss | PlainLoss


def ignored(loss: Loss) -> int | None:
    """The label of samples that are left out."""
    return loss.ignore_index if isinstance(loss, CrossEntropyLoss) else None


@dataclass(frozen=True)
class Weights:
    """Trained weights that a net starts from, the statistics of batch norms among them; patterns are of their names."""

    file: Annotated[Text, "a run directory, a checkpoint or a safetensors file"]
    match: Annotated[Text | tuple[Text, ...], "pattern or list of patterns of the names to load, as conv*"] = "*"
    exclude: Annotated[
        Text | tuple[Text, ...],
        "pattern or list of patterns of the names to leave out, which start anew, as dense1.*",
    ] = ()
    strict: Annotated[bool, "refuse a file that lacks weights of the net, or that has others"] = True
    names: Annotated[Literal["auto", "mpibow", "torchvision"], "naming scheme of the file; auto detects it"] = "auto"
