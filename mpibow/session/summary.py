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
from mpibow.tune import as_sum

PACKAGES = ("numpy", "mpi4py", "safetensors")


@dataclass(frozen=True)
class Summary:
    """Accuracies are fractions of the samples, null without these, and of the last centre unless named `best`; seconds
    are of training alone."""

    run: str
    stopped: str  # the limit or signal that ended it
    chosen_by: str | None  # the data that target and best are of, and a stop by accuracy: validation, or else test
    validation_accuracy: float | None
    validation_top_k_accuracy: float | None
    validation_loss: float | None
    accuracy: float | None  # on test data, as the next ones
    top_k: int | None
    top_k_accuracy: float | None
    test_loss: float | None
    best_accuracy: float | None  # the highest on the data that chose
    best_test_accuracy: float | None  # of the checkpoint that validation data chose as the best
    best_test_loss: float | None
    average_validation_accuracy: float | None  # of the average of the centre, null without `ema`
    average_validation_loss: float | None
    average_accuracy: float | None  # on test data
    average_test_loss: float | None
    validation_metrics: Mapping[str, Any]  # by name, as `metrics` has them
    test_metrics: Mapping[str, Any]
    best_metric: float | None  # the best value of checkpoint.metric on the data that chose
    best_test_metrics: Mapping[str, Any]
    average_validation_metrics: Mapping[str, Any]
    average_test_metrics: Mapping[str, Any]
    epochs: float
    iterations: int
    samples: int
    seconds: float
    evaluation_seconds: float
    target: float | None
    goal: str  # the metric that is to reach the target
    epochs_to_target: float | None
    seconds_to_target: float | None
    images_per_second: float
    ranks: int
    learners: tuple[int, ...]
    execution: str | None  # how a GPU's learners ran at the end: streams or fused; null on a host
    changes: int  # how often learners came or went
    settled: bool | None  # whether the tuner had settled on these learners; null where they are given
    reason: str | None  # the tuner's reason for its decision; null where it decided nothing
    batch_size: int
    rule: dict[str, Any]
    device: str
    precision: str
    seed: int
    gain: float
    drift: float
    mismatches: int
    resets: int
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
        return asdict(self)

    def __str__(self) -> str:
        learners = as_sum(self.learners)
        lines = [f"stopped by {self.stopped} after {self.epochs:.2f} epochs ({self.samples:,} samples)"]
        for data, accuracy, top_k_accuracy, loss, metrics in (
            ("validation", self.validation_accuracy, self.validation_top_k_accuracy, self.validation_loss,
             self.validation_metrics),
            ("test", self.accuracy, self.top_k_accuracy, self.test_loss, self.test_metrics),
        ):  # fmt: skip
            best = self.best_accuracy if data == self.chosen_by else None
            if accuracy is not None:
                line = f"{data} accuracy {accuracy:.2%}" + ("" if best is None else f" (best {best:.2%})")
                line += "" if top_k_accuracy is None else f", top-{self.top_k} {top_k_accuracy:.2%}"
            elif loss is not None:
                line = f"{data} loss {loss:.4f}"
            else:
                continue
            lines.append(line + shown_metrics(metrics))
        if self.best_test_loss is not None:
            found = f"loss {self.best_test_loss:.4f}"
            found = found if self.best_test_accuracy is None else f"accuracy {self.best_test_accuracy:.2%}"
            lines[-1] += f", of the best checkpoint {found}"
        for data, accuracy, loss in (
            ("validation", self.average_validation_accuracy, self.average_validation_loss),
            ("test", self.average_accuracy, self.average_test_loss),
        ):
            if loss is not None:
                found = f"loss {loss:.4f}" if accuracy is None else f"accuracy {accuracy:.2%}"
                lines.append(f"the average of the centre: {data} {found}")
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
