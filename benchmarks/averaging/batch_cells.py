"""What bench_batches.py runs: every cell, what tells most first."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from benchmarks.sides import Found

Part = Literal["batches", "speed"]

SEED = 1  # of the runs to the target
TARGET = 0.99
EPOCHS = 4
LENET = "launch/lenet-mnist.yaml"
MNIST = (
    *("update.momentum=0.9", f"update.schedule={{name: cosine, epochs: {EPOCHS}}}", f"stop.epochs={EPOCHS}"),
    *("evaluate.every=0.25", "checkpoint.best=false", f"stop.accuracy={TARGET}"),
)
BATCHES = (2, 4, 8, 16, 32, 64, 256)
TELLING = (8, 64, 2, 256, 32, 16, 4)  # the same, the ends and the middle first
RATE = 0.003 / 8  # a sample's, at momentum 0.9: the rate of a batch is that times its size
ROOT_FROM = 32  # from this batch on also the rate that grows with the batch's square root
ROOT_RATE = ", root rate"


@dataclass(frozen=True)
class Cell:
    """One run: of which part, of which side (LeNet for the speeds of all), its batch size.

    `words` is what is typed behind `python -m mpibow.train`, or PyTorch's task as JSON.
    """

    part: Part
    row: str
    batch: int
    words: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return speed_key(self.batch) if self.part == "speed" else run_key(self.row, self.batch)

    @property
    def torch(self) -> bool:
        return self.row.startswith("PyTorch")


def speed_key(batch: int) -> str:
    return f"speed | LeNet | {batch} | seed 0"


def run_key(row: str, batch: int) -> str:
    return f"batches | {row} | {batch} | seed {SEED}"


def cells(part: Part, found: Found) -> Iterator[Cell]:
    """The cells of `part`; of `batches` some are known only when `speed` has run."""
    if part == "speed":
        yield from (Cell("speed", "LeNet", batch) for batch in BATCHES)
    else:
        yield from _batches(found)


@dataclass(frozen=True)
class Rate:
    """What a batch is trained with, and what is written behind the side's name."""

    name: str
    lr: float
    warmup: int = 0  # epochs


def rates(batch: int) -> list[Rate]:
    """In proportion to the batch; from ROOT_FROM on with a warm-up, and also in proportion to its root without one.

    PyTorch's and our first epoch both diverge at batch 256 without a warm-up; at 8 times 0.003 neither needs one.
    """
    linear = Rate("", _six_digits(RATE * batch), int(batch >= ROOT_FROM))
    return [linear, Rate(ROOT_RATE, _six_digits(RATE * math.sqrt(8 * batch)))] if batch >= ROOT_FROM else [linear]


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def _batches(found: Found) -> Iterator[Cell]:
    """One learner, as many as the tuner settled on where it was asked already, and PyTorch."""
    for batch in TELLING:
        settled = found.get(speed_key(batch), {}).get("learners", 1)
        for rate in rates(batch):
            warm = (f"update.warmup.epochs={rate.warmup}",) if rate.warmup else ()
            for k in sorted({1, settled}):
                own = (f"batch_size={batch}", f"update.lr={rate.lr:g}", f"learners={k}", f"seed={SEED}")
                yield Cell("batches", f"learners {k}{rate.name}", batch, (LENET, *MNIST, *own, *warm))
            task = {"batch_size": batch, "lr": rate.lr, "seed": SEED, "epochs": EPOCHS, "momentum": 0.9}
            task |= {"accuracy": TARGET} | ({"warmup": rate.warmup} if rate.warmup else {})
            yield Cell("batches", "PyTorch" + rate.name, batch, (json.dumps(task),))
