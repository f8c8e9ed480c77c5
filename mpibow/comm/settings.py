"""The settings of how long a run may stand still before its watchdog ends it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from mpibow.bounds import Above

Limit = Literal["auto"] | Annotated[float, Above(0)] | None

LEAST = {"start": 1800.0, "iteration": 300.0, "evaluation": 600.0, "checkpoint": 1800.0}  # seconds, of auto
TIMES = 100  # the mean time from step to step of what is measured so far, of auto


@dataclass(frozen=True)
class Limits:
    """How long all ranks of a node may stand still before they end with exit code 8; warnings come at a tenth of it."""

    start: Annotated[
        Limit,
        "seconds without progress before the first iteration is over, and after the last; auto is 1800; null waits",
    ] = "auto"
    iteration: Annotated[
        Limit, "seconds without progress in an iteration; auto is 300, or 100 times the measured mean; null waits"
    ] = "auto"
    evaluation: Annotated[
        Limit, "seconds without a batch evaluated; auto is 600, or 100 times the measured mean; null waits"
    ] = "auto"
    checkpoint: Annotated[
        Limit, "seconds without a file written; auto is 1800, or 100 times the measured mean; null waits"
    ] = "auto"

    def seconds(self, phase: str, mean: float) -> float:
        """The limit of `phase`, whose steps have taken `mean` seconds so far; infinite where nothing limits it."""
        limit: float | str | None = getattr(self, phase, None)
        if limit == "auto":
            return max(LEAST[phase], TIMES * mean)
        return math.inf if limit is None else float(limit)
