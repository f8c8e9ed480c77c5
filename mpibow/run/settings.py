"""The settings of `checkpoint`: when a run's state is saved, and which checkpoints are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, cast

from mpibow.bounds import Count, Matches, Text

Interval = Annotated[
    str,
    Matches(
        r"(?=[0-9.]*[1-9])([0-9]+ +iterations?|[0-9]+(\.[0-9]+)? +(epoch|minute)s?)",
        "such as '1 epoch', '500 iterations' or '30 minutes'",
    ),
]
Unit = Literal["epoch", "iteration", "minute"]


class Every(NamedTuple):
    """A distance between events, as `2 epochs`, `500 iterations` or `0.5 minutes`."""

    amount: float
    unit: Unit


@dataclass(frozen=True)
class Checkpoint:
    every: Annotated[Interval | None, "interval between checkpoints; null is never"] = "1 epoch"
    keep: Annotated[Count, "number of latest checkpoints to keep"] = 2
    best: Annotated[bool, "also keep the best checkpoint"] = True
    metric: Annotated[
        Text | None,
        "what chooses the best checkpoint: loss, accuracy or one of `metrics`; null: accuracy, without classes loss",
    ] = None

    @property
    def interval(self) -> Every | None:
        if self.every is None:
            return None
        amount, unit = self.every.split()
        return Every(float(amount), cast(Unit, unit.removesuffix("s")))

    def due(self, iteration: int, best: bool, passed: Callable[[float], bool]) -> bool:
        """Whether a checkpoint is due. `best`: the centre is the best so far; `passed`: so many epochs have passed."""
        if (every := self.interval) is None:
            return False
        if every.unit == "iteration" and iteration % int(every.amount) == 0:
            return True
        return (best and self.best) or (every.unit == "epoch" and passed(every.amount))

    def overdue(self, seconds: float) -> bool:
        """Whether a checkpoint is due by the time since the last one, by rank 0's clock."""
        every = self.interval
        return every is not None and every.unit == "minute" and seconds > 60 * every.amount
