"""Learning-rate schedules: the factor of the rate, as a pure function of the epoch.

Epochs are fractions: after half of the samples of the third epoch, `epoch` is 2.5. Step, multistep and plateau drop the
rate at a moment, where SMA may restart (`drops`); the others never do. A rate of 1 is `update.lr`. Where PyTorch has a
schedule (torch.optim.lr_scheduler), its formula is the one here, with epochs in place of steps.
"""

import math
from bisect import bisect_right
from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from typing import Annotated, Literal

from mpibow.bounds import AtLeast, AtMost, Below, Count, Natural, NotEmpty, NotNegative, Positive, Rising
from mpibow.errors import ConfigError

from .plateau import Plateau, Smooth


@dataclass(frozen=True)
class ConstantRate(Smooth):
    """1 throughout."""

    _: KW_ONLY
    name: Literal["constant"] = "constant"


@dataclass(frozen=True)
class StepDecay:
    """factor ** floor(epoch / every)"""

    every: Annotated[Positive, "epochs between drops"]
    factor: Annotated[Positive, "factor of the rate at a drop"]
    _: KW_ONLY
    name: Literal["step"] = "step"

    def rate(self, epoch: float) -> float:
        return float(self.factor ** math.floor(epoch / self.every))

    def drops(self, before: float, after: float) -> bool:
        """Whether a drop lies in (before, after]."""
        return math.floor(after / self.every) > math.floor(before / self.every)


@dataclass(frozen=True)
class MultiStep:
    """factor ** (how many of `epochs` are at or before epoch)"""

    epochs: Annotated[tuple[Positive, ...], NotEmpty(), Rising(), "epochs of the drops"]
    factor: Annotated[Positive, "factor of the rate at a drop"]
    _: KW_ONLY
    name: Literal["multistep"] = "multistep"

    def rate(self, epoch: float) -> float:
        return float(self.factor ** bisect_right(self.epochs, epoch))

    def drops(self, before: float, after: float) -> bool:
        """Whether a drop lies in (before, after]."""
        return bisect_right(self.epochs, after) > bisect_right(self.epochs, before)


@dataclass(frozen=True)
class Exponential(Smooth):
    """factor ** epoch"""

    factor: Annotated[Positive, "factor of the rate per epoch"]
    _: KW_ONLY
    name: Literal["exponential"] = "exponential"

    def rate(self, epoch: float) -> float:
        return float(self.factor**epoch)


@dataclass(frozen=True)
class Inverse(Smooth):
    """(1 + gamma * epoch) ** -power"""

    gamma: Annotated[Positive, "decay per epoch"]
    power: Annotated[Positive, "exponent of the decay"]
    _: KW_ONLY
    name: Literal["inverse"] = "inverse"

    def rate(self, epoch: float) -> float:
        return float((1 + self.gamma * epoch) ** -self.power)


Floor = Annotated[NotNegative, Below(1), "the last rate, as a fraction of lr"]


def cosine(start: float, end: float, part: float) -> float:
    """From `start` at part 0 to `end` at 1, along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


def line(start: float, end: float, part: float) -> float:
    """From `start` at part 0 to `end` at 1, straight."""
    return start + (end - start) * part


@dataclass(frozen=True)
class Ending(Smooth):
    """A smooth schedule that ends after `epochs`, with the rate `along(1)`; see `over` for auto."""

    epochs: Annotated[Literal["auto"] | Positive, "epochs until the schedule ends; auto is stop.epochs"] = "auto"

    def along(self, part: float) -> float:
        """The rate at `part` of the epochs, 0 to 1."""
        raise NotImplementedError

    def rate(self, epoch: float) -> float:
        assert self.epochs != "auto"
        return self.along(min(epoch / self.epochs, 1.0))


@dataclass(frozen=True)
class Cosine(Ending):
    """floor + (1 - floor) * (1 + cos(pi * epoch / epochs)) / 2, and floor after `epochs` (CosineAnnealingLR)."""

    floor: Floor = 0.0
    _: KW_ONLY
    name: Literal["cosine"] = "cosine"

    def along(self, part: float) -> float:
        return cosine(1.0, self.floor, part)


@dataclass(frozen=True)
class Linear(Ending):
    """start_factor + (end_factor - start_factor) * epoch / epochs, and end_factor after `epochs` (LinearLR)."""

    start_factor: Annotated[NotNegative, "the first rate, as a multiple of lr"] = 1.0
    end_factor: Annotated[NotNegative, "the last rate, as a multiple of lr"] = 0.0
    _: KW_ONLY
    name: Literal["linear"] = "linear"

    def along(self, part: float) -> float:
        return line(self.start_factor, self.end_factor, part)


@dataclass(frozen=True)
class Polynomial(Ending):
    """(1 - epoch / epochs) ** power, and 0 after `epochs` (PolynomialLR)."""

    power: Annotated[Positive, "exponent; 1 is a straight line"] = 1.0
    _: KW_ONLY
    name: Literal["polynomial"] = "polynomial"

    def along(self, part: float) -> float:
        return float((1.0 - part) ** self.power)


@dataclass(frozen=True)
class OneCycle(Ending):
    """Up from 1 / div_factor to 1 within pct_start of `epochs`, then down to 1 / (div_factor * final_div_factor)
    (Smith and Topin, arXiv:1708.07120; OneCycleLR with cycle_momentum=False: the momentum stays as it is)."""

    pct_start: Annotated[Positive, Below(1), "share of the epochs in which the rate rises"] = 0.3
    anneal_strategy: Annotated[Literal["cos", "linear"], "shape of the rise and the fall"] = "cos"
    div_factor: Annotated[float, AtLeast(1), "lr / the first rate"] = 25.0
    final_div_factor: Annotated[float, AtLeast(1), "the first rate / the last rate"] = 1e4
    three_phase: Annotated[bool, "fall to the first rate in as many epochs as the rise took, then to the last rate"] = (
        False
    )
    _: KW_ONLY
    name: Literal["one_cycle"] = "one_cycle"

    def __post_init__(self) -> None:
        if self.three_phase and self.pct_start >= 0.5:
            raise ConfigError(f"pct_start: with three_phase must be below 0.5, got {self.pct_start:g}")

    def along(self, part: float) -> float:
        first = 1.0 / self.div_factor
        up = self.pct_start
        last = first / self.final_div_factor
        points = [(0.0, first), (up, 1.0), (1.0, last)]
        if self.three_phase:
            points.insert(2, (2 * up, first))
        curve = cosine if self.anneal_strategy == "cos" else line
        for (begin, start), (end, stop) in pairwise(points):
            if part <= end:
                return curve(start, stop, (part - begin) / (end - begin)) if end > begin else stop
        return last


@dataclass(frozen=True)
class CosineRestarts(Smooth):
    """A cosine from 1 to floor over `every` epochs, then again from 1, each `mult` times as long as the one before
    (Loshchilov and Hutter, arXiv:1608.03983; CosineAnnealingWarmRestarts with T_0 = every and T_mult = mult)."""

    every: Annotated[Positive, "epochs of the first cosine"]
    mult: Annotated[Count, "length of each cosine / that of the one before"] = 1
    floor: Floor = 0.0
    _: KW_ONLY
    name: Literal["cosine_restarts"] = "cosine_restarts"

    def rate(self, epoch: float) -> float:
        begin = 0.0
        length = self.every
        if self.mult == 1:
            begin = math.floor(epoch / length) * length
        while epoch >= begin + length:
            begin += length
            length *= self.mult
        return cosine(1.0, self.floor, (epoch - begin) / length)


@dataclass(frozen=True)
class Wsd(Ending):
    """1, and over the last `decay` of `epochs` down to floor: warm-up, stable, decay, with update.warmup in front
    (Hu et al., arXiv:2404.06395). `sqrt` is 1 - sqrt(part of the decay) (Haegele et al., arXiv:2405.18392)."""

    decay: Annotated[Positive, AtMost(1), "share of the epochs in which the rate falls"] = 0.2
    shape: Annotated[Literal["linear", "cosine", "sqrt"], "shape of the fall"] = "linear"
    floor: Floor = 0.0
    _: KW_ONLY
    name: Literal["wsd"] = "wsd"

    def along(self, part: float) -> float:
        fallen = max((part - (1.0 - self.decay)) / self.decay, 0.0)
        if self.shape == "cosine":
            return cosine(1.0, self.floor, fallen)
        return line(1.0, self.floor, math.sqrt(fallen) if self.shape == "sqrt" else fallen)


Schedule = (
    ConstantRate
    | StepDecay
    | MultiStep
    | Exponential
    | Inverse
    | Cosine
    | Linear
    | Polynomial
    | OneCycle
    | CosineRestarts
    | Wsd
    | Plateau
)


def over(schedule: Schedule, epochs: float | None) -> Schedule:
    """The schedule of a run of so many epochs, None where it has no such limit. Raises ConfigError."""
    if not isinstance(schedule, Ending) or schedule.epochs != "auto":
        return schedule
    if epochs is None:
        raise ConfigError("update.schedule.epochs: auto is stop.epochs, which is null; give a number")
    return replace(schedule, epochs=epochs)


def ended_early(schedule: Schedule, rate: float, epochs: float | None) -> str:
    """The warning for a schedule that ends before a run of `epochs` at `rate` does, '' for others."""
    if not isinstance(schedule, Ending) or schedule.epochs == "auto" or epochs is None or schedule.epochs >= epochs:
        return ""
    last = f"from epoch {schedule.epochs:g} to {epochs:g} the rate is {schedule.along(1.0) * rate:g}"
    return f"warning: update.schedule ends before the run: {last}; set update.schedule.epochs=auto"


@dataclass(frozen=True)
class Warmup:
    """start + (1 - start) * epoch / epochs, and 1 after `epochs`; or the same of iterations. 0 of both: no warm-up."""

    epochs: Annotated[NotNegative, "epochs until the rate reaches its full value; 0: no warm-up"] = 0.0
    start: Annotated[Positive, AtMost(1), "the first rate, as a fraction of the full rate"] = 0.1
    iterations: Annotated[Natural, "iterations until the rate reaches its full value, in place of epochs"] = 0

    def __post_init__(self) -> None:
        if self.epochs and self.iterations:
            raise ConfigError(
                f"iterations: cannot be combined with epochs {self.epochs:g}, got {self.iterations}; leave one out"
            )

    def rate(self, epoch: float, iteration: int = 0) -> float:
        done, whole = (iteration, self.iterations) if self.iterations else (epoch, self.epochs)
        return self.start + (1 - self.start) * done / whole if done < whole else 1.0


def multiplier(schedule: Schedule, warmup: Warmup, epoch: float, iteration: int = 0) -> float:
    """The factor of the learning rate at `epoch`: the schedule's rate times the warm-up's."""
    return warmup.rate(epoch, iteration) * schedule.rate(epoch)
