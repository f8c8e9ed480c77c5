"""A run's progress, and its learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpibow.tune import Counts


@dataclass(frozen=True)
class Where:
    """A run's progress: iterations done, samples consumed, epochs as a fraction; learners by rank, their execution."""

    iteration: int
    position: int
    epoch: float
    learners: Counts
    execution: str = ""

    def fields(self) -> dict[str, Any]:
        return {"iteration": self.iteration, "position": self.position, "epoch": round(self.epoch, 6)}

    def running(self) -> dict[str, Any]:
        """Learners, and their execution if there is a choice."""
        return {"learners": self.learners, **({"execution": self.execution} if self.execution else {})}
