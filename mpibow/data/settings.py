"""The settings of how stored images become samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from mpibow.bounds import AtLeast
from mpibow.errors import ConfigError

Auto = Literal["auto"]
Kind = Literal["host", "dali", "resident"]
Wanted = Literal["auto", "host", "dali", "resident"]


@dataclass(frozen=True)
class Image:
    """Encoded images as arrays (3, size, size). What is evaluated is the centre; training may take another window."""

    size: Annotated[int, AtLeast(1), "height and width of a sample"] = 224
    resize: Annotated[
        Annotated[int, AtLeast(1)] | None,
        "in evaluation the shorter side is scaled to this before the centre is taken; null is 8/7 of size",
    ] = None

    def __post_init__(self) -> None:
        if self.shorter < self.size:
            raise ConfigError(f"resize: must be at least size, {self.size}, got {self.resize}")

    @property
    def shorter(self) -> int:
        """The scaled shorter side: 256 for 224, as everybody evaluates ImageNet."""
        return round(self.size * 8 / 7) if self.resize is None else self.resize
