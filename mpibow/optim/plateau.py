"""Reduce on plateau: the rate drops where a metric has stopped improving; the state is a value, the step pure."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Literal

from mpibow.bounds import Below, Natural, NotNegative, Positive, Text


def better(rises: bool, value: float, than: float) -> bool:
    """Whether a value of a metric that is to rise, or to fall, is better than another."""
    return value > than if rises else value < than


class Smooth:
    """A schedule without drops; its own rate is 1 throughout."""

    def rate(self, epoch: float) -> float:
        return 1.0

    def drops(self, before: float, after: float) -> bool:
        return False


@dataclass(frozen=True)
class Plateau(Smooth):
    """The rate times `factor` after more than `patience` values of the metric in a row that are no improvement
    (ReduceLROnPlateau). `accuracy` and `loss` are those of each evaluation on validation data, `training_loss` is each
    epoch's mean. Its rate depends on the run and is kept in `Reduced`."""

    metric: Annotated[
        Text, "metric that must improve: loss, accuracy or one of `metrics` on the validation data, or training_loss"
    ] = "loss"
    factor: Annotated[Positive, Below(1), "factor of the rate at a drop"] = 0.1
    patience: Annotated[Natural, "values without improvement that are allowed before a drop"] = 10
    threshold: Annotated[NotNegative, "smallest change that counts as an improvement"] = 1e-4
    threshold_mode: Annotated[Literal["rel", "abs"], "threshold as a fraction of the best value, or as it is"] = "rel"
    cooldown: Annotated[Natural, "values after a drop that are ignored"] = 0
    floor: Annotated[NotNegative, Below(1), "lowest rate, as a fraction of lr"] = 0.0
    _: KW_ONLY
    name: Literal["plateau"] = "plateau"

    def improves(self, value: float, best: float | None, rises: bool) -> bool:
        if best is None or not math.isfinite(value):
            return math.isfinite(value)
        margin = self.threshold * (best if self.threshold_mode == "rel" else 1.0)
        return better(rises, value, best + margin if rises else best - margin)


@dataclass(frozen=True)
class Reduced:
    """The state of a plateau schedule: the best value of `metric`, how many since were no improvement, how many more
    do not count, the rate, and the iteration of its last drop."""

    metric: str = ""
    best: float | None = None
    bad: int = 0
    cooldown: int = 0
    rate: float = 1.0
    dropped_at: int = -1


def follow(schedule: Plateau, state: Reduced, value: float, iteration: int, *, rises: bool = False) -> Reduced:
    """The state after another value of the metric, which is to fall, or `rises` where it improves; a drop is of the
    iteration to come, number `iteration`."""
    if state.metric != schedule.metric:  # a resumed run may go by another
        state = Reduced(metric=schedule.metric, rate=state.rate, dropped_at=state.dropped_at)
    if schedule.improves(value, state.best, rises):
        state = replace(state, best=value, bad=0)
    else:
        state = replace(state, bad=state.bad + 1)
    if state.cooldown > 0:
        state = replace(state, cooldown=state.cooldown - 1, bad=0)
    if state.bad <= schedule.patience:
        return state
    rate = max(state.rate * schedule.factor, schedule.floor)
    dropped = iteration if rate < state.rate else state.dropped_at
    return replace(state, bad=0, cooldown=schedule.cooldown, rate=rate, dropped_at=dropped)
