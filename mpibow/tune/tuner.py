"""The settings of the auto-tuner, and how long a window must be."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from mpibow.bounds import Below, Count, Positive


@dataclass(frozen=True)
class WindowSpan:
    """A window ends when its times are known to `precision` (relative standard error), within these seconds."""

    least: float
    most: float
    precision: float


@dataclass(frozen=True)
class Tuner:
    """The search for the number of learners under `learners: auto`: its two settings and its constants."""

    threshold: Annotated[
        Positive, Below(1), "least gain in images/s that one more learner must bring, as a fraction"
    ] = 0.03
    most: Annotated[Count, "most learners per rank"] = 64
    drift: ClassVar = 0.1  # change of speed, as a fraction, after which the tuner starts again
    patience: ClassVar = 1  # numbers of learners to try after the first one without such a gain
    window: ClassVar = 1.75  # most seconds to measure a number of learners; 15 iterations if these take longer
    watch: ClassVar = 5.0  # seconds between checks of the speed once settled; 15 iterations if these take longer
    again: ClassVar = 60.0  # seconds without change after which the tuner tries other numbers again, later more

    @property
    def precision(self) -> float:
        """The precision that shows whether a learner is worth having; if it is not reached, windows are repeated."""
        return self.threshold / 2

    @property
    def pause(self) -> int:
        """Windows of `watching` that last for about `again` seconds, or longer."""
        return round(self.again / self.watch)

    @property
    def looking(self) -> WindowSpan:
        return WindowSpan(self.window / 8, self.window, self.precision)

    @property
    def watching(self) -> WindowSpan:
        return WindowSpan(self.watch, 2 * self.watch, self.precision)
