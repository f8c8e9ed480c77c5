"""The settings of a watchdog: how long a run may make no progress before it is ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from mpibow.bounds import Positive

Limit = Literal["auto"] | Positive | None

LEAST = {"start": 1800.0, "iteration": 300.0, "evaluation": 600.0, "checkpoint": 1800.0}  # seconds, of auto
TIMES = 100  # the mean time from step to step measured so far, of auto


@dataclass(frozen=True)
class Limits:
    """How long a node's ranks may make no progress before they end with exit code 8; a tenth of it brings a warning."""

    start: Annotated[
        Limit,
        "most seconds without progress up to the first iteration, and after the last; auto is 1800; null: no limit",
    ] = "auto"
    iteration: Annotated[
        Limit,
        "most seconds without progress in an iteration; auto is 300, or 100 times the measured mean; null: no limit",
    ] = "auto"
    evaluation: Annotated[
        Limit,
        "most seconds for one batch of an evaluation; auto is 600, or 100 times the measured mean; null: no limit",
    ] = "auto"
    checkpoint: Annotated[
        Limit, "most seconds for one file of a checkpoint; auto is 1800, or 100 times the measured mean; null: no limit"
    ] = "auto"

    def seconds(self, phase: str, mean: float) -> float:
        """The limit of `phase`, whose steps have taken `mean` seconds so far; infinite if it has none."""
        limit: float | str | None = getattr(self, phase, None)
        if limit == "auto":
            return max(LEAST[phase], TIMES * mean)
        return math.inf if limit is None else float(limit)
