"""The settings that turn encoded images and tokens into samples."""

from dataclasses import dataclass
from typing import Annotated, Literal

from mpibow.bounds import Count
from mpibow.errors import ConfigError

Auto = Literal["auto"]
Kind = Literal["host", "dali", "resident"]
Wanted = Literal["auto", "host", "dali", "resident"]


@dataclass(frozen=True)
class Image:
    """Encoded images as arrays (3, size, size). Evaluation takes the centre crop; training may take random crops."""

    size: Annotated[Count, "height and width of a sample"] = 224
    resize: Annotated[
        Count | None, "evaluation scales the shorter side to this before it takes the centre crop; null is 8/7 of size"
    ] = None

    def __post_init__(self) -> None:
        if self.shorter < self.size:
            raise ConfigError(f"resize: must be at least size, {self.size}, got {self.resize}")

    @property
    def shorter(self) -> int:
        """The scaled shorter side: 256 for 224, as everybody evaluates ImageNet."""
        return round(self.size * 8 / 7) if self.resize is None else self.resize


@dataclass(frozen=True)
class TokenStream:
    """A stream of tokens as windows. Each is a sample by itself: no state is carried from one to the next."""

    context: Annotated[Count, "tokens of a window, each of which predicts the one after it"] = 128
    windows: Annotated[
        Literal["random", "consecutive"],
        "training windows are all shifted by a random number of tokens, another in every epoch, or stay in place",
    ] = "random"
