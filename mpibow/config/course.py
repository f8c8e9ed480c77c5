"""The settings of a run's course: when it ends, when its state is saved, and which checkpoints are kept."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated

from mpibow.bounds import AtMost, Count, Matches, NotNegative, Positive, Text
from mpibow.errors import ConfigError
from mpibow.optim.plateau import better

Interval = Annotated[
    str,
    Matches(
        r"(?=[0-9.]*[1-9])([0-9]+ +iterations?|[0-9]+(\.[0-9]+)? +(epoch|minute)s?)",
        "such as '1 epoch', '500 iterations' or '30 minutes'",
    ),
]


@dataclass(frozen=True)
class Watched:
    """The history of stop.metric: the last values, as many as its median needs (null: not finite), the best median, and
    the number of values since without improvement."""

    metric: str = ""
    recent: tuple[float | None, ...] = ()
    best: float | None = None
    bad: int = 0


@dataclass(frozen=True)
class Stop:
    """The run ends at the first limit that is reached."""

    epochs: Annotated[Positive | None, "end after so many epochs"] = 10.0
    accuracy: Annotated[
        Annotated[Positive, AtMost(1)] | None,
        "end when the centre reaches this accuracy on the validation data, without these on the test data",
    ] = None
    minutes: Annotated[Positive | None, "end after so many minutes of training"] = None
    iterations: Annotated[Count | None, "end after so many iterations"] = None
    metric: Annotated[
        Text | None,
        "the metric that above, below and patience check: accuracy, loss or one of `metrics` on the validation data, "
        "without these on the test data, or training_loss, an epoch's mean",
    ] = None
    above: Annotated[float | None, "end when the metric is at this value or above"] = None
    below: Annotated[float | None, "end when the metric is at this value or below"] = None
    patience: Annotated[Count | None, "end after so many values of the metric without improvement"] = None
    min_delta: Annotated[NotNegative, "smallest change that counts as an improvement"] = 0.0
    median: Annotated[Count, "above, below and patience check the median of so many last values"] = 1

    def __post_init__(self) -> None:
        if {self.epochs, self.accuracy, self.minutes, self.iterations, self.metric} == {None}:
            raise ConfigError("one of epochs, accuracy, minutes, iterations, metric must be set, got null for all")
        given = [name for name in ("above", "below", "patience") if getattr(self, name) is not None]
        if self.metric is None:
            given += ["min_delta"] * (self.min_delta > 0) + ["median"] * (self.median > 1)
            if given:
                raise ConfigError(
                    f"{given[0]}: needs stop.metric, which is null; set it to accuracy, loss, training_loss or one of "
                    "metrics"
                )
        elif not given:
            raise ConfigError(f"metric: {self.metric} needs above, below or patience, got null for all")
        if self.above is not None and self.below is not None:
            raise ConfigError(f"below: cannot be combined with above {self.above:g}, got {self.below:g}; leave one out")
        if self.min_delta > 0 and self.metric is not None and self.patience is None:
            raise ConfigError(f"min_delta: needs patience, which is null, got {self.min_delta:g}")
        if self.accuracy is not None and self.metric == "accuracy" and self.threshold is not None:
            raise ConfigError(
                f"above: is a second limit of the accuracy, beside accuracy {self.accuracy:g}; leave one out"
            )

    @property
    def threshold(self) -> float | None:
        """The value that the metric must reach, from below or from above."""
        return self.above if self.above is not None else self.below

    @property
    def target(self) -> tuple[str, float | None]:
        """The target in words, and its value; None for none. The run reports the epochs to it."""
        if self.accuracy is not None or self.threshold is None:
            return "accuracy", self.accuracy
        of = f"median of {self.median}: " if self.median > 1 else ""
        return f"{of}{self.metric} {'above' if self.above is not None else 'below'}", self.threshold

    def follow(self, state: Watched, value: float, *, rises: bool = False) -> Watched:
        """The state after another value of the metric; `rises`: a higher value is better, else a lower one."""
        if state.metric != self.metric:
            state = Watched(metric=self.metric or "")
        recent = (*state.recent, value if math.isfinite(value) else None)[-self.median :]
        state = replace(state, recent=recent)
        level = self.level(state)
        if level is None:  # too few values yet, or one that is not finite
            return replace(state, bad=state.bad + (len(recent) == self.median))
        sign = 1.0 if rises else -1.0
        if state.best is None or better(rises, level, state.best + sign * self.min_delta):
            return replace(state, best=level, bad=0)
        return replace(state, bad=state.bad + 1)

    def level(self, state: Watched) -> float | None:
        """The median of the last values; None where there are too few, or one is not finite."""
        finite = [value for value in state.recent if value is not None]
        return median(finite) if state.metric == self.metric and len(finite) == self.median else None

    def met(self, state: Watched) -> bool:
        """Whether the metric has reached its threshold."""
        level = self.level(state)
        if level is None:
            return False
        return (self.above is not None and level >= self.above) or (self.below is not None and level <= self.below)

    def reached(
        self, iteration: int, position: int, count: int, *, accurate: bool, watched: Watched = Watched()
    ) -> str:
        """The first limit that is reached at `position`, in samples of which an epoch has `count`; '' if none is."""
        if self.epochs is not None and position >= self.epochs * count:
            return f"stop.epochs {self.epochs:g}"
        if self.iterations is not None and iteration >= self.iterations:
            return f"stop.iterations {self.iterations}"
        if self.accuracy is not None and accurate:
            return f"stop.accuracy {self.accuracy:g}"
        if self.met(watched):
            return f"stop.above {self.above:g}" if self.above is not None else f"stop.below {self.below:g}"
        stuck = self.patience is not None and watched.metric == self.metric and watched.bad >= self.patience
        return f"stop.patience {self.patience}" if stuck else ""

    def overdue(self, seconds: float) -> str:
        """The limit of time if so many `seconds` of training by rank 0's clock pass it; '' if not."""
        return "" if self.minutes is None or seconds <= 60 * self.minutes else f"stop.minutes {self.minutes:g}"

    def foreseen(
        self, iteration: int, position: int, count: int, *, samples: int, speed: float, seconds: float
    ) -> float | None:
        """The expected position of the end, for `samples` an iteration, `speed` of them a second, after `seconds` of
        training. None where only a metric ends it."""
        ends = [
            None if self.epochs is None else self.epochs * count,
            None if self.iterations is None else position + (self.iterations - iteration) * samples,
            None if self.minutes is None else position + (60 * self.minutes - seconds) * speed,
        ]
        return min((end for end in ends if end is not None), default=None)


@dataclass(frozen=True)
class Checkpoint:
    every: Annotated[Interval | None, "interval between checkpoints; null: only where a signal ends it, or one did"] = (
        "1 epoch"
    )
    keep: Annotated[Count, "number of latest checkpoints to keep"] = 2
    best: Annotated[bool, "also keep the best checkpoint"] = True
    metric: Annotated[
        Text | None,
        "what chooses the best checkpoint: loss, accuracy or one of `metrics`; null: accuracy, without classes loss",
    ] = None

    @property
    def interval(self) -> tuple[float, str] | None:
        """`every` as its amount and unit: epoch, iteration or minute."""
        if self.every is None:
            return None
        amount, unit = self.every.split()
        return float(amount), unit.removesuffix("s")

    def due(self, iteration: int, best: bool, passed: Callable[[float], bool]) -> bool:
        """Whether a checkpoint is due. `best`: the centre is the best so far; `passed`: so many epochs have passed."""
        if self.interval is None:
            return False
        amount, unit = self.interval
        if unit == "iteration" and iteration % int(amount) == 0:
            return True
        return (best and self.best) or (unit == "epoch" and passed(amount))

    def overdue(self, seconds: float) -> bool:
        """Whether a checkpoint is due by the time since the last one, by rank 0's clock."""
        amount, unit = self.interval or (math.inf, "")
        return unit == "minute" and seconds > 60 * amount
