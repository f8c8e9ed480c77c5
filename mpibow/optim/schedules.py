"""Learning-rate schedules: what the rate is multiplied by, as a pure function of the epoch.

Epochs are fractions: after half of the samples of the third epoch, `epoch` is 2.5. Step and multistep drop the rate at
a moment, where SMA may restart (`drops`); the others are smooth and never do.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from mpibow.bounds import Above, AtLeast, AtMost, Below, NotEmpty, Rising
from mpibow.errors import ConfigError


class Smooth:
    """A schedule without drops."""

    def drops(self, before: float, after: float) -> bool:
        return False


@dataclass(frozen=True)
class Constant(Smooth):
    """1 throughout."""

    name: Literal["constant"] = field(default="constant", kw_only=True)

    def rate(self, epoch: float) -> float:
        return 1.0


@dataclass(frozen=True)
class Step:
    """factor ** floor(epoch / every)"""

    name: Literal["step"] = field(default="step", kw_only=True)
    every: Annotated[float, Above(0), "epochs between drops"]
    factor: Annotated[float, Above(0), "factor of the rate at a drop"]

    def rate(self, epoch: float) -> float:
        return float(self.factor ** math.floor(epoch / self.every))

    def drops(self, before: float, after: float) -> bool:
        """Whether a drop lies in (before, after]."""
        return math.floor(after / self.every) > math.floor(before / self.every)


@dataclass(frozen=True)
class MultiStep:
    """factor ** (how many of `epochs` are at or before epoch)"""

    name: Literal["multistep"] = field(default="multistep", kw_only=True)
    epochs: Annotated[tuple[Annotated[float, Above(0)], ...], NotEmpty(), Rising(), "epochs of the drops"]
    factor: Annotated[float, Above(0), "factor of the rate at a drop"]

    def rate(self, epoch: float) -> float:
        return float(self.factor ** bisect_right(self.epochs, epoch))

    def drops(self, before: float, after: float) -> bool:
        """Whether a drop lies in (before, after]."""
        return bisect_right(self.epochs, after) > bisect_right(self.epochs, before)


@dataclass(frozen=True)
class Exponential(Smooth):
    """factor ** epoch"""

    name: Literal["exponential"] = field(default="exponential", kw_only=True)
    factor: Annotated[float, Above(0), "factor of the rate per epoch"]

    def rate(self, epoch: float) -> float:
        return float(self.factor**epoch)


@dataclass(frozen=True)
class Inverse(Smooth):
    """(1 + gamma * epoch) ** -power"""

    name: Literal["inverse"] = field(default="inverse", kw_only=True)
    gamma: Annotated[float, Above(0), "decay per epoch"]
    power: Annotated[float, Above(0), "exponent of the decay"]

    def rate(self, epoch: float) -> float:
        return float((1 + self.gamma * epoch) ** -self.power)


@dataclass(frozen=True)
class Cosine(Smooth):
    """floor + (1 - floor) * (1 + cos(pi * epoch / epochs)) / 2, and floor after `epochs`; see `over` for auto."""

    name: Literal["cosine"] = field(default="cosine", kw_only=True)
    epochs: Annotated[
        Literal["auto"] | Annotated[float, Above(0)], "epochs until the rate is at its floor; auto is stop.epochs"
    ] = "auto"
    floor: Annotated[float, AtLeast(0), Below(1), "the last rate, as a fraction of the first"] = 0.0

    def rate(self, epoch: float) -> float:
        assert self.epochs != "auto"
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * min(epoch / self.epochs, 1.0))) / 2


Schedule = Constant | Step | MultiStep | Exponential | Inverse | Cosine


def over(schedule: Schedule, epochs: float | None) -> Schedule:
    """The schedule of a run of so many epochs, None where it has no such limit. Raises ConfigError."""
    if not isinstance(schedule, Cosine) or schedule.epochs != "auto":
        return schedule
    if epochs is None:
        raise ConfigError("update.schedule.epochs: auto is stop.epochs, which is null; give a number")
    return replace(schedule, epochs=epochs)


def ended_early(schedule: Schedule, rate: float, epochs: float | None) -> str:
    """What to say of a schedule that ends before a run of `epochs` at `rate` does, '' of others."""
    if not isinstance(schedule, Cosine) or schedule.epochs == "auto" or epochs is None or schedule.epochs >= epochs:
        return ""
    last = f"from epoch {schedule.epochs:g} to {epochs:g} the rate is {schedule.floor * rate:g}"
    return f"warning: update.schedule ends before the run: {last}; set update.schedule.epochs=auto"


@dataclass(frozen=True)
class Warmup:
    """start + (1 - start) * epoch / epochs, and 1 after `epochs`; 0 epochs are no warm-up."""

    epochs: Annotated[float, AtLeast(0), "epochs until the rate reaches its full value; 0 is no warm-up"] = 0.0
    start: Annotated[float, Above(0), AtMost(1), "the first rate, as a fraction of the full rate"] = 0.1

    def rate(self, epoch: float) -> float:
        return self.start + (1 - self.start) * epoch / self.epochs if epoch < self.epochs else 1.0


def multiplier(schedule: Schedule, warmup: Warmup, epoch: float) -> float:
    """What the learning rate is multiplied by at `epoch`: the schedule's rate times the warm-up's."""
    return warmup.rate(epoch) * schedule.rate(epoch)
