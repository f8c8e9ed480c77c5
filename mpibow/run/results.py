"""A run's results: the ledger, which checkpoints have, and the summary in the end."""

import math
import platform
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cache

from mpibow import __version__
from mpibow.config.course import Watched
from mpibow.graph import Array
from mpibow.models import Build
from mpibow.optim.plateau import Reduced, better
from mpibow.system import JsonObject
from mpibow.system.packages import installed
from mpibow.tune import as_sum

from .evaluate import Evaluation

PACKAGES = ("numpy", "mpi4py", "safetensors")


@dataclass
class Results:
    """The results that checkpoints and the summary have. Accuracies are fractions of the samples, null without these,
    and of the last centre unless named `best`; seconds are of training alone."""

    validation_accuracy: float | None = None
    validation_top_k_accuracy: float | None = None
    validation_loss: float | None = None
    accuracy: float | None = None  # on test data, as the next ones
    top_k_accuracy: float | None = None
    test_loss: float | None = None
    best_accuracy: float | None = None  # the highest on the data that chose
    best_test_accuracy: float | None = None  # of the checkpoint that validation data chose as the best
    best_test_loss: float | None = None
    average_validation_accuracy: float | None = None  # of the average of the centre, null without `ema`
    average_validation_loss: float | None = None
    average_accuracy: float | None = None  # on test data
    average_test_loss: float | None = None
    validation_metrics: JsonObject = field(default_factory=dict)  # by name, as `metrics` has them
    test_metrics: JsonObject = field(default_factory=dict)
    best_metric: float | None = None  # the best value of checkpoint.metric on the data that chose
    best_test_metrics: JsonObject = field(default_factory=dict)
    average_validation_metrics: JsonObject = field(default_factory=dict)
    average_test_metrics: JsonObject = field(default_factory=dict)
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    target: float | None = None
    goal: str = "accuracy"  # the metric that is to reach the target
    epochs_to_target: float | None = None
    seconds_to_target: float | None = None
    changes: int = 0  # how often learners came or went
    reason: str | None = None  # the tuner's reason for its last decision that was new; null where it decided nothing
    drift: float = 0.0
    mismatches: int = 0
    resets: int = 0


@dataclass
class Ledger(Results):
    """Sums over the whole run, resumed or not. `loss`, `hits` and `samples` count since the last metrics entry."""

    images: int = 0
    unheard: int = 0  # samples whose losses no all-reduce has carried yet; the header has them beside the ledger
    loss: float = 0.0
    hits: float = 0.0
    samples: int = 0
    chooser: str = "test"  # the data that best, target and `evaluated_at` are of
    best_loss: float | None = None
    best_at: int | None = None  # iteration
    best_by: str | None = None  # checkpoint.metric, None: the accuracy, without classes the loss
    best_rises: bool = True
    evaluated_at: int = -1  # position
    guessed: int = 0  # evaluations in a row whose accuracy is that of chance
    settled: bool = False  # whether the tuner's last decision, be it new or not, was to stay
    epoch_loss: float = 0.0  # sums since the last epoch ended
    epoch_samples: int = 0
    watched: Watched = field(default_factory=Watched)  # stop.metric
    reduced: Reduced = field(default_factory=Reduced)  # a plateau schedule
    damaged: list[str] = field(default_factory=list)  # samples that others replaced, by data set and number

    def stepped(self, samples: int) -> None:
        """Enters an iteration, over so many samples."""
        self.images += samples
        self.unheard += samples

    def heard(self, loss: float, hits: float, left_out: int) -> None:
        """Enters the sums that an all-reduce has carried, over all samples since the one before but those left out."""
        samples = max(self.unheard - left_out, 0)
        self.unheard = 0
        self.loss += loss
        self.hits += hits
        self.samples += samples
        self.epoch_loss += loss
        self.epoch_samples += samples

    def evaluated(self, data: str, found: Evaluation, iteration: int, position: int, epoch: float) -> bool:
        """Enters an evaluation on the `data` that choose, "validation" or "test". True if it is the best so far, by
        checkpoint.metric, else by accuracy, or by the loss where there is none."""
        self.enter(data, found)
        self.evaluated_at = position
        if best := self._best(found, epoch):
            self.best_at = iteration
        return best

    def enter(self, place: str, found: Evaluation) -> None:
        """Enters an evaluation: validation, test, average_validation, average_test (of the average) or best_test."""
        self.evaluation_seconds += found.seconds
        values = {
            f"{place}_loss": found.loss,
            f"{place}_metrics": dict(found.metrics),
            _accuracy(place): found.accuracy,
        }
        if place in ("validation", "test"):
            values[_accuracy(place, "top_k_accuracy")] = found.top_k_accuracy
        vars(self).update(values)

    @property
    def chosen(self) -> JsonObject:
        """The last values on the data that choose, by metric."""
        if self.chooser == "test":
            return measures(self.test_metrics, self.test_loss, self.accuracy)
        return measures(self.validation_metrics, self.validation_loss, self.validation_accuracy)

    def met(self, epoch: float) -> None:
        """Enters that the target is reached."""
        if self.target is not None and self.epochs_to_target is None:
            self.epochs_to_target = epoch
            self.seconds_to_target = self.seconds

    def _best(self, found: Evaluation, epoch: float) -> bool:
        accuracy = found.accuracy
        if best := found.loss < (math.inf if self.best_loss is None else self.best_loss):  # NaN never is
            self.best_loss = found.loss
        if accuracy is not None:
            if self.goal == "accuracy" and self.target is not None and accuracy >= self.target:
                self.met(epoch)
            if best := self.best_accuracy is None or accuracy > self.best_accuracy:
                self.best_accuracy = accuracy
        if self.best_by is None:
            return best
        value = measures(found.metrics, found.loss, accuracy).get(self.best_by)
        if value is None or not math.isfinite(value):
            return False
        if best := self.best_metric is None or better(self.best_rises, value, self.best_metric):
            self.best_metric = value
        return best

    def state(self) -> JsonObject:
        return {name: value for name, value in asdict(self).items() if name != "unheard"}

    def continued(
        self,
        target: float | None,
        chooser: str = "test",
        goal: str = "accuracy",
        *,
        by: str | None = None,
        rises: bool = True,
    ) -> "Ledger":
        """The ledger of a run that goes on from this one; a changed target is still to be reached.

        If other data choose now, or another metric `by`, there is no best yet.
        """
        ledger = deepcopy(self)
        other = ledger.chooser != chooser
        if other or ledger.best_by != by:
            ledger.best_accuracy = ledger.best_loss = ledger.best_at = ledger.best_metric = None
            ledger.best_by = by
        if other:
            ledger.chooser = chooser
            ledger.evaluated_at = -1
            ledger.best_test_accuracy = ledger.best_test_loss = None
            ledger.watched = Watched()
            ledger.reduced = replace(ledger.reduced, metric="")
        ledger.best_rises = rises
        if other or (ledger.goal, ledger.target) != (goal, target):
            ledger.goal = goal
            ledger.target = target
            ledger.epochs_to_target = None
            ledger.seconds_to_target = None
        return ledger


def _accuracy(place: str, name: str = "accuracy") -> str:
    """The name of an accuracy: on test data, which it does not name, of the centre and of its average."""
    return {"test": name, "average_test": f"average_{name}"}.get(place, f"{place}_{name}")


def measures(metrics: JsonObject, loss: float | None, accuracy: float | None) -> JsonObject:
    """All by name. Without classes there is no accuracy, and a run's own metric may have that name."""
    return {**metrics, "loss": loss, **({} if accuracy is None else {"accuracy": accuracy})}


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
    rule: JsonObject
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

    def json(self) -> JsonObject:
        return {"run": self.run, "stopped": self.stopped, **asdict(self)}

    def __str__(self) -> str:
        lines = [f"stopped by {self.stopped} after {self.epochs:.2f} epochs ({self.samples:,} samples)"]
        for data in ("validation", "test"):
            if (score := self._score(data)) is None:
                continue
            if self.best_accuracy is not None and data == self.chosen_by:
                score += f" (best {self.best_accuracy:.2%})"
            if (top_k := getattr(self, _accuracy(data, "top_k_accuracy"))) is not None:
                score += f", top-{self.top_k} {top_k:.2%}"
            lines.append(f"{data} {score}{shown_metrics(getattr(self, f'{data}_metrics'))}")
        if (score := self._score("best_test")) is not None:
            lines[-1] += f", of the best checkpoint {score}"
        for data in ("validation", "test"):
            if (score := self._score(f"average_{data}")) is not None:
                lines.append(f"the average of the centre: {data} {score}")
        if self.target is not None:
            reached = "not reached"
            if self.epochs_to_target is not None and self.seconds_to_target is not None:
                reached = f"reached in {self.epochs_to_target:g} epochs, {self.seconds_to_target:.1f} s"
            target = f"{self.target:.2%}" if "accuracy" in self.goal else f"{self.target:g}"
            lines.append(f"target {'' if self.goal == 'accuracy' else f'{self.goal} '}{target} {reached}")
        lines.append(
            f"{self.images_per_second:,.0f} images/s over {self.seconds:.1f} s of training, "
            f"{self.evaluation_seconds:.1f} s of evaluation"
        )
        learners = f"{as_sum(self.learners)} {self.execution or ''}".rstrip()
        lines.append(f"{self.ranks} rank(s), learners {learners}, batch {self.batch_size}, rule {self.rule['name']}")
        if self.mismatches:
            lines.append(f"{self.mismatches} array(s) differed between ranks on the way, and were replaced by rank 0's")
        lines.append(f"run directory {self.run}")
        if self.interrupted:
            anew = f"--resume {self.run}, in a program with fit(..., resume={self.run!r})"
            lines.append(f"the state is saved: continue with {anew}")
        return "\n".join(lines)

    def _score(self, place: str) -> str | None:
        """The accuracy of an evaluation, without classes its loss; None where there was none."""
        accuracy = getattr(self, _accuracy(place))
        loss = getattr(self, f"{place}_loss")
        if accuracy is not None:
            return f"accuracy {accuracy:.2%}"
        return None if loss is None else f"loss {loss:.4f}"


@dataclass(frozen=True)
class Trained:
    """The result of training: its summary, the centre's weights and statistics by name in canonical shapes, its net,
    and the weights and statistics of its average, if there is one."""

    summary: Summary
    weights: dict[str, Array]
    build: Build  # of the net's graphs, the same on all ranks
    average: dict[str, Array] | None = None
    signal: str = ""  # the first that a rank received, even while the run ended by itself; '' if none


def shown_metrics(metrics: JsonObject | None) -> str:
    """The end of a line of the log: ", mae 0.1234, r2 0.9876"; matrices are left out, a null is not finite."""
    numbers = {name: value for name, value in (metrics or {}).items() if not isinstance(value, list)}
    return "".join(f", {name} {'-' if value is None else f'{value:.4f}'}" for name, value in numbers.items())


@cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that the numbers depend on."""
    return {"python": platform.python_version(), "mpibow": __version__, **installed(PACKAGES)}
