"""The summary of a run: summary.json, and the last lines that `train` prints."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mpibow import __version__
from mpibow.graph.graph import Array
from mpibow.models.classifier import Build
from mpibow.run.ledger import Results
from mpibow.tune import as_sum

PACKAGES = ("numpy", "mpi4py", "safetensors")


@dataclass(kw_only=True)
class Summary(Results):
    """A run's results, as summary.json has them, and the run that they are of."""

    run: str
    stopped: str  # the limit or signal that ended it
    chosen_by: str | None  # the data that target and best are of, and a stop by accuracy: validation, or else test
    top_k: int | None
    epochs: float
    iterations: int
    samples: int
    images_per_second: float
    ranks: int
    learners: tuple[int, ...]
    execution: str | None  # how a GPU's learners ran at the end: streams or fused; null on a host
    settled: bool | None  # whether the tuner had settled on these learners; null where they are given
    batch_size: int
    rule: dict[str, Any]
    device: str
    precision: str
    seed: int
    gain: float
    corrupt: int  # damaged samples that others replaced
    data_wait: float  # fraction of the training time that learners of rank 0 waited for slots
    sync_wait: float  # likewise for the all-reduce
    sync_hidden: float | None  # fraction of the all-reduce that was hidden behind compute; null for one rank
    versions: dict[str, str]
    checkpoint: str | None

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended it, which saves the state."""
        return self.stopped.startswith("SIG")

    def json(self) -> dict[str, Any]:
        return {"run": self.run, "stopped": self.stopped, **asdict(self)}

    def __str__(self) -> str:
        learners = as_sum(self.learners)
        lines = [f"stopped by {self.stopped} after {self.epochs:.2f} epochs ({self.samples:,} samples)"]
        for data, accuracy, top_k_accuracy, loss, metrics in (
            ("validation", self.validation_accuracy, self.validation_top_k_accuracy, self.validation_loss,
             self.validation_metrics),
            ("test", self.accuracy, self.top_k_accuracy, self.test_loss, self.test_metrics),
        ):  # fmt: skip
            if loss is None:
                continue
            line = f"{data} {_score(accuracy, loss)}"
            if self.best_accuracy is not None and data == self.chosen_by:
                line += f" (best {self.best_accuracy:.2%})"
            line += "" if top_k_accuracy is None else f", top-{self.top_k} {top_k_accuracy:.2%}"
            lines.append(line + shown_metrics(metrics))
        if self.best_test_loss is not None:
            lines[-1] += f", of the best checkpoint {_score(self.best_test_accuracy, self.best_test_loss)}"
        for data, accuracy, loss in (
            ("validation", self.average_validation_accuracy, self.average_validation_loss),
            ("test", self.average_accuracy, self.average_test_loss),
        ):
            if loss is not None:
                lines.append(f"the average of the centre: {data} {_score(accuracy, loss)}")
        if self.target is not None:
            reached = (
                f"reached in {self.epochs_to_target:g} epochs, {self.seconds_to_target:.1f} s"
                if self.epochs_to_target is not None and self.seconds_to_target is not None
                else "not reached"
            )
            target = f"{self.target:.2%}" if "accuracy" in self.goal else f"{self.target:g}"
            lines.append(f"target {'' if self.goal == 'accuracy' else f'{self.goal} '}{target} {reached}")
        lines.append(
            f"{self.images_per_second:,.0f} images/s over {self.seconds:.1f} s of training, "
            f"{self.evaluation_seconds:.1f} s of evaluation"
        )
        learners += f" {self.execution}" if self.execution else ""
        lines.append(f"{self.ranks} rank(s), learners {learners}, batch {self.batch_size}, rule {self.rule['name']}")
        if self.mismatches:
            lines.append(f"{self.mismatches} array(s) differed between ranks on the way, and were replaced by rank 0's")
        lines.append(f"run directory {self.run}")
        if self.interrupted:
            anew = f"--resume {self.run}, in a program with fit(..., resume={self.run!r})"
            lines.append(f"the state is saved: continue with {anew}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Trained:
    """The result of training: its summary, the centre's weights and statistics by name in canonical shapes, its net,
    and the weights and statistics of its average, if there is one."""

    summary: Summary
    weights: dict[str, Array]
    build: Build  # of the net's graphs, the same on all ranks
    average: dict[str, Array] | None = None
    signal: str = ""  # the first that a rank received, even while the run ended by itself; '' if none


def _score(accuracy: float | None, loss: float) -> str:
    return f"loss {loss:.4f}" if accuracy is None else f"accuracy {accuracy:.2%}"


def shown_metrics(metrics: Mapping[str, Any] | None) -> str:
    """The end of a line of the log: ", mae 0.1234, r2 0.9876"; matrices are left out, a null is not finite."""
    numbers = {name: value for name, value in (metrics or {}).items() if not isinstance(value, list)}
    return "".join(f", {name} {'-' if value is None else f'{value:.4f}'}" for name, value in numbers.items())


@cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that the numbers depend on."""
    found = {"python": platform.python_version(), "mpibow": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
