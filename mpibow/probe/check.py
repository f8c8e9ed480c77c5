"""Does a net learn at all? Shapes, the first loss beside chance, and whether it can overfit eight samples."""

import math
from dataclasses import dataclass, replace

import numpy as np

from mpibow.data import NamedSamples, Shape
from mpibow.data.split import Divisible
from mpibow.errors import ConfigError, DivergedError
from mpibow.job import Job
from mpibow.job.job import Callback
from mpibow.models.objective import OWN
from mpibow.optim import Adam
from mpibow.run.callbacks import STOP, Event, Iteration

from .trial import Run, Tried, tried

SAMPLES = 8
STEPS = 300
RATE = 3e-3  # Adam's, for nets and data of usual scale
LEARNED = 0.1  # of the first loss: the samples are memorised
FELL = 0.7  # of the first loss: above it, nothing is learned
CHANCE = 2.0  # times the loss of chance: the net begins with confident wrong answers


@dataclass(frozen=True)
class Checked:
    """The result of a check; printed, it is the report.

    shapes: of the net's outputs for a batch, by name. weights: their number. loss: of the first step. chance: the loss
    of guessing, None without classes. losses: of the steps on SAMPLES samples. accuracy: of the last of these, None
    without classes.
    """

    shapes: dict[str, Shape]
    weights: int
    loss: float
    chance: float | None
    losses: tuple[float, ...]
    accuracy: float | None

    @property
    def learned(self) -> bool:
        """Whether the net has memorised the samples, or nearly so."""
        return self.accuracy == 1.0 or min(self.losses) <= LEARNED * self.losses[0]

    @property
    def warnings(self) -> list[str]:
        """Warnings of oddities that may be intended."""
        found = []
        if self.chance is not None and self.loss > CHANCE * self.chance:
            found.append(
                f"the first loss is {self.loss / self.chance:.1f} times that of guessing: are inputs scaled, and are "
                "the last layer's weights small?"
            )
        if self.chance is not None and self.loss < self.chance / CHANCE:
            found.append("the first loss is far below that of guessing: does the net see the labels?")
        if not self.learned:
            found.append(
                f"after {len(self.losses)} steps the {SAMPLES} samples are not overfitted: dropout, or a loss that "
                "cannot reach 0, may be why"
            )
        return found

    def __str__(self) -> str:
        outputs = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        chance = "" if self.chance is None else f", guessing has {self.chance:.3f}"
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.0%}"
        steps = f"{SAMPLES} samples, {len(self.losses)} steps of Adam"
        return "\n  ".join(
            [
                "check:",
                f"outputs for a batch: {outputs or 'losses alone'}; {self.weights:,} weights",
                f"first loss {self.loss:.3f}{chance}",
                f"{steps}: loss {self.losses[0]:.3f} to {min(self.losses):.3g}{accuracy}",
                *(f"warning: {text}" for text in self.warnings),
            ]
        )


def check(job: Job, run: Run) -> Checked:
    """Trains `job`'s net on eight samples that are spread over its training data. The run itself is not touched.

    Raises ConfigError where the loss does not fall, DivergedError where it is not finite.
    """
    config = job.config
    data = job.train
    graph = job.build(config.batch_size, True)
    shapes = {name: graph.tensors[tensor].shape for name, tensor in graph.outputs.items() if name not in OWN}
    if not isinstance(data, Divisible):
        raise ConfigError(f"check: needs records or arrays to take {SAMPLES} samples of, {data.name} is neither")
    rows = np.unique(np.linspace(0, data.count - 1, SAMPLES).astype(np.int64))
    few = data.part(rows)
    update = Adam(lr=RATE, groups=tuple(replace(group, update=None) for group in config.update.groups))
    first = tried(job, run, iterations=1, update=update, batch_size=min(config.batch_size, data.count))
    _finite(first, "the first batch")
    found = tried(
        job, run, iterations=STEPS, update=update, train=few, batch_size=len(rows), callbacks=[_until_learned()]
    )
    losses = _finite(found, f"{len(rows)} samples")
    classes = None if isinstance(data, NamedSamples) else data.classes
    report = Checked(
        shapes,
        graph.weight_count,
        float(first.losses[0] or 0.0),
        None if classes is None else math.log(classes),
        losses,
        None if classes is None else found.hits[-1],
    )
    if not report.learned and min(losses) > losses[0] - (1 - FELL) * abs(losses[0]):
        raise ConfigError(
            f"check: the net does not learn {len(rows)} samples: the loss went from {losses[0]:.4g} to "
            f"{min(losses):.4g} in {len(losses)} steps of Adam; look at the loss, at the scale of the inputs, and "
            "whether every layer's output is used"
        )
    return report


def _finite(found: Tried, where: str) -> tuple[float, ...]:
    """Its losses. Raises DivergedError where one is not finite."""
    losses = tuple(loss for loss in found.losses if loss is not None)
    if found.last is None or not losses or len(losses) < len(found.losses):
        raise DivergedError(
            f"check: the loss or a gradient of {where} is not finite at step {len(losses) + 1}; look for a division "
            "by 0, a logarithm of 0, or inputs that are not finite or far from 1"
        )
    return losses


def _until_learned() -> Callback:
    """A callback that ends the check as soon as the samples are memorised."""
    losses = []

    def check(event: Event) -> object:
        if not isinstance(event, Iteration) or event.loss is None:
            return None
        losses.append(event.loss)
        return STOP if event.loss <= LEARNED * losses[0] and event.accuracy in (None, 1.0) else None

    return check
