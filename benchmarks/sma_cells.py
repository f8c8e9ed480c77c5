"""What bench_sma.py runs: every cell of its tables, what tells most first."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Found = Mapping[str, Any]  # what came of the cells that have run, by their keys

SEEDS = (1, 2, 3)
TARGET = 0.99  # of MNIST; CIFAR-10's is the accuracy of one learner after so many epochs:
CIFAR_EPOCH = 8
RULES = {  # nothing but a `rate x learners` changes with the number of learners
    "SMA, mean step": ["rule={name: sma}"],
    "SMA, orthogonal step": ["rule={name: sma, outer: {name: orthogonal}}"],
    "SMA as published": ["rule={name: crossbow}"],
    "S-SGD": ["rule={name: ssgd}"],
    "S-SGD, rate x learners": ["rule={name: ssgd, outer: {gain: learners}}"],
    "EA-SGD": ["rule={name: crossbow, momentum: 0}"],
}
NO_MORE = ("SMA, mean step, delay 1",)  # measured with versions that had it
DEFAULT = "SMA, mean step"
MNIST_RULES = tuple(RULES)
CIFAR_RULES = tuple(rule for rule in RULES if rule != "EA-SGD")
ONE = "SGD"  # the row of one learner, under whatever rule
EPOCHS = 4
LENET = "launch/lenet-mnist.yaml"
MNIST = (
    *("update.momentum=0.9", f"update.schedule={{name: cosine, epochs: {EPOCHS}}}", f"stop.epochs={EPOCHS}"),
    *("evaluate.every=0.25", "checkpoint.best=false"),
)
CIFAR = ("launch/resnet20-cifar10.yaml", "update.lr=0.0125", "update.schedule={name: cosine, epochs: 10}",
         "stop.epochs=10")  # fmt: skip
BATCHES = (2, 4, 8, 16, 32, 64, 256)
TELLING = (8, 64, 2, 256, 32, 16, 4)  # the same, the ends and the middle first
RATE = 0.003 / 8  # a sample's, at momentum 0.9: the rate of a batch is that times its size
ROOT_FROM = 32  # from this batch on also the rate that grows with the batch's square root
ROOT_RATE = ", root rate"


@dataclass(frozen=True)
class Cell:
    """One run: of which table, its row and column there, its seed.

    `words` is what is typed behind `python -m mpibow.train`, or PyTorch's task as JSON.
    """

    part: str
    row: str
    column: str
    seed: int
    words: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return key(self.part, self.row, self.column, self.seed)

    @property
    def torch(self) -> bool:
        return self.part == "batches" and self.row.startswith("PyTorch")


def key(part: str, row: str, column: object, seed: int) -> str:
    return f"{part} | {row} | {column} | seed {seed}"


def speed_key(batch: int) -> str:
    return key("speed", "LeNet", batch, 0)


def cells(parts: Sequence[str], found: Found) -> Iterator[Cell]:
    """The cells of `parts`, a seed's after the other's, of `batches` one seed; some are known only when others ran."""
    if "speed" in parts:
        yield from (Cell("speed", "LeNet", str(batch), 0) for batch in BATCHES)
    for seed in SEEDS:
        if "batches" in parts and seed == SEEDS[0]:
            yield from _batches(seed, found)
        if "mnist" in parts:
            yield from _mnist(seed)
        if "cifar" in parts:
            yield from _cifar(seed, found)


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


def _batches(seed: int, found: Found) -> Iterator[Cell]:
    """One learner, as many as the tuner settled on where it was asked already, and PyTorch."""
    for batch in TELLING:
        settled = found.get(speed_key(batch), {}).get("learners", 1)
        for rate in rates(batch):
            warm = (f"update.warmup.epochs={rate.warmup}",) if rate.warmup else ()
            for k in sorted({1, settled}):
                own = (f"batch_size={batch}", f"update.lr={rate.lr:g}", f"learners={k}", f"seed={seed}")
                words = (LENET, *MNIST, f"stop.accuracy={TARGET}", *own, *warm)
                yield Cell("batches", f"learners {k}{rate.name}", str(batch), seed, words)
            task = {"batch_size": batch, "lr": rate.lr, "seed": seed, "epochs": EPOCHS, "momentum": 0.9}
            task |= {"accuracy": TARGET} | ({"warmup": rate.warmup} if rate.warmup else {})
            yield Cell("batches", "PyTorch" + rate.name, str(batch), seed, (json.dumps(task),))


def _mnist(seed: int) -> Iterator[Cell]:
    common = (LENET, *MNIST, "update.lr=0.003", "stop.accuracy=null", f"seed={seed}")
    yield Cell("mnist", ONE, "1", seed, (*common, "learners=1"))
    for k in (16, 4, 8, 2):
        for rule in MNIST_RULES:
            yield Cell("mnist", rule, str(k), seed, (*common, *RULES[rule], f"learners={k}"))


def _cifar(seed: int, found: Found) -> Iterator[Cell]:
    """One seed; the second of those cells that the first one cannot tell apart."""
    seeds = [] if seed == 1 else [f"seed={seed}"]
    again = undecided(found) if seed == 2 else set()
    if seed == 1 or (seed == 2 and again):
        yield Cell("cifar", ONE, "1", seed, (*CIFAR, *seeds, "learners=1"))
    for k in (16, 4):
        for rule in CIFAR_RULES:
            if seed == 1 or (rule, k) in again:
                yield Cell("cifar", rule, str(k), seed, (*CIFAR, *seeds, *RULES[rule], f"learners={k}"))


def cifar_target(found: Found) -> float | None:
    """The accuracy of one learner on CIFAR-10 after CIFAR_EPOCH epochs; None where that has not been run."""
    one = found.get(key("cifar", ONE, 1, 1))
    if one is None:
        return None
    return next((a for e, a in zip(one["epochs"], one["accuracies"], strict=True) if e >= CIFAR_EPOCH), None)


def epochs_to(target: float | None, cell: Mapping[str, Any] | None) -> float | None:
    """Epochs until `target`: on the line from the last evaluation below to the first that is not; None if none is."""
    before: tuple[float, float] | None = None
    if cell is None or target is None:
        return None
    for epoch, accuracy in zip(cell["epochs"], cell["accuracies"], strict=True):
        if accuracy >= target:
            if before is None:
                return float(epoch)
            return before[0] + (epoch - before[0]) * (target - before[1]) / (accuracy - before[1])
        before = epoch, accuracy
    return None


def undecided(found: Found) -> set[tuple[str, int]]:
    """Rules and learners on CIFAR-10 that need epochs within 5 % of another rule's there, or of one learner's."""
    target, close = cifar_target(found), set()
    for k in (16, 4):
        need = {(rule, k): epochs_to(target, found.get(key("cifar", rule, k, 1))) for rule in CIFAR_RULES}
        need[ONE, 1] = epochs_to(target, found.get(key("cifar", ONE, 1, 1)))
        known = {name: epochs for name, epochs in need.items() if epochs is not None}
        for name, epochs in known.items():
            others = [other for each, other in known.items() if each != name]
            if name[0] != ONE and any(abs(epochs - other) <= 0.05 * other for other in others):
                close.add(name)
    return close
