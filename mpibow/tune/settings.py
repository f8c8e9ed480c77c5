"""The settings of the auto-tuner, and how long a window must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mpibow.bounds import Above, AtLeast, Below

NEVER = 1e18  # windows; their number must be an integer


@dataclass(frozen=True)
class Span:
    """A window ends when its times are known to `precision` (relative standard error), within these seconds."""

    least: float
    most: float
    precision: float


@dataclass(frozen=True)
class Tuner:
    """The settings of the search for the number of learners under `learners: auto`."""

    threshold: Annotated[
        float, Above(0), Below(1), "least gain in images/s that one more learner must bring, as a fraction"
    ] = 0.03
    drift: Annotated[float, Above(0), "change of speed, as a fraction, after which the tuner starts again"] = 0.1
    patience: Annotated[int, AtLeast(0), "numbers of learners to try after the first one without such a gain"] = 1
    most: Annotated[int, AtLeast(1), "most learners per rank"] = 64
    window: Annotated[
        float, Above(0), "most seconds to measure a number of learners; 15 iterations if these take longer"
    ] = 2.0
    watch: Annotated[
        float, Above(0), "seconds between checks of the speed once settled; 15 iterations if these take longer"
    ] = 5.0
    again: Annotated[
        float,
        Above(0),
        "seconds without change after which the tuner tries other numbers again, later more; 1e9: never",
    ] = 60.0

    @property
    def precision(self) -> float:
        """The precision that shows whether a learner is worth having; if it is not reached, windows are repeated."""
        return self.threshold / 2

    @property
    def pause(self) -> int:
        """Windows of `watching` that last for about `again` seconds, or longer."""
        return round(min(self.again / self.watch, NEVER))

    @property
    def looking(self) -> Span:
        return Span(self.window / 8, self.window, self.precision)

    @property
    def watching(self) -> Span:
        return Span(self.watch, 2 * self.watch, self.precision)
