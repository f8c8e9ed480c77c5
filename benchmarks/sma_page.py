"""What bench_sma.py makes of its cells: points of time to target, and tables. Nothing is measured here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sides import table
from sma_cells import (
    BATCHES,
    CIFAR_EPOCH,
    EPOCHS,
    ONE,
    RULES,
    SEEDS,
    TARGET,
    Found,
    Rate,
    cifar_target,
    epochs_to,
    key,
    rates,
    speed_key,
)

from mpibow.sync.settings import Sma

DEFAULTS = ("SMA, mean step", "SMA, orthogonal step")  # one of them, for every number of learners
IMAGES = 60_000  # of an epoch of MNIST
SIDES = {"one learner": "one", "auto": "auto", "PyTorch": "torch"}  # what is said, and in a speed cell


@dataclass(frozen=True)
class Point:
    """A side at a batch size; None where that has not been measured, or the target has not been reached."""

    side: str
    batch: int
    learners: int
    lr: float
    by_seed: tuple[float | None, ...]  # epochs to the target
    speed: float | None  # images/s

    @property
    def epochs(self) -> float | None:
        """Their mean, if all seeds that were run got there."""
        return _mean(self.by_seed)

    @property
    def seconds(self) -> float | None:
        return None if self.epochs is None or self.speed is None else self.epochs * IMAGES / self.speed


def points(found: Found) -> list[Point]:
    """Every side at every batch size with the better of the rates it was tried with: what needs fewer epochs."""
    made = []
    for batch in BATCHES:
        for side in SIDES:
            tried = [point for rate in rates(batch) if (point := _point(found, side, batch, rate))]
            if tried:
                made.append(min(tried, key=lambda point: point.epochs or math.inf))
    return made


def _point(found: Found, side: str, batch: int, rate: Rate) -> Point | None:
    speed = found.get(speed_key(batch), {})
    learners = {"one learner": 1, "auto": speed.get("learners"), "PyTorch": 0}[side]
    if learners is None:
        return None
    row = (f"learners {learners}" if learners else side) + rate.name
    runs = [cell for seed in SEEDS if (cell := found.get(key("batches", row, batch, seed)))]
    if not runs and not speed:
        return None
    epochs = tuple(epochs_to(TARGET, cell) for cell in runs)
    return Point(side, batch, learners, rate.lr, epochs, speed.get("images_per_second", {}).get(SIDES[side]))


def tables(found: Found) -> str:
    """What there is, as text."""
    lines = [
        "# Epochs over learners, rules and batch sizes\n\n",
        "Made by `python benchmarks/bench_sma.py`; within a table nothing differs but what its first columns say. "
        "Epochs to a target are read off the line between the last evaluation below it and the first that is not; "
        "a mean over seeds is given where all of them got there.\n",
    ]
    for part in (_batches, _mnist, _cifar):
        lines += part(found)
    return "".join(lines)


def _batches(found: Found) -> Iterator[str]:
    made = points(found)
    if not made:
        return
    yield (
        f"\n## LeNet on MNIST to {TARGET:.0%}: batch sizes\n\nMomentum 0.9, a cosine over {EPOCHS} epochs, the rate "
        "0.003 for batch 8 and in proportion to the batch, for all sides; from batch 32 on with a warm-up over the "
        "first epoch, and also in proportion to the root of the batch without one: given is what needs fewer epochs. "
        "Evaluated every 0.25 epochs. Images/s are of runs side by side on a quiet machine (`--only speed`), seconds "
        "epochs x 60,000 / images/s, without those in which the tuner settled.\n\n"
    )
    heads = ["batch", "", "learners", "rate", "seeds", "epochs to target", "images/s", "seconds to target"]
    rows = []
    for point in made:
        learners = str(point.learners) if point.learners else ""
        speed = "" if point.speed is None else f"{point.speed:,.0f}"
        seconds = "" if point.seconds is None else f"{point.seconds:.1f}"
        needed = _each(point.by_seed)
        seeds = str(len(point.by_seed))
        rows.append([str(point.batch), point.side, learners, f"{point.lr:.4g}", seeds, needed, speed, seconds])
    yield table(heads, rows)


def _mnist(found: Found) -> Iterator[str]:
    title = f"LeNet on MNIST, batch 8, to {TARGET:.0%}"
    yield from _rules(found, "mnist", title, lambda cell: epochs_to(TARGET, cell))


def _cifar(found: Found) -> Iterator[str]:
    target = cifar_target(found)
    to = "" if target is None else f", to {target:.2%}, which one learner knows after {CIFAR_EPOCH} epochs"
    yield from _rules(found, "cifar", f"ResNet-20 on CIFAR-10, batch 16{to}", lambda cell: epochs_to(target, cell))


def _rules(found: Found, part: str, title: str, needed: Callable[[Found | None], float | None]) -> Iterator[str]:
    """A table of rules over numbers of learners."""
    mine = {name: cell for name, cell in found.items() if name.startswith(f"{part} |")}
    if not mine:
        return
    yield f"\n## {title}\n\n`{next(iter(mine.values()))['command']}` and the like\n\n"
    order = (ONE, *RULES)
    places = sorted({tuple(name.split(" | ")[1:3]) for name in mine}, key=lambda at: (int(at[1]), order.index(at[0])))
    rows = []
    for rule, k in places:
        seeds = [seed for seed in SEEDS if key(part, rule, k, seed) in mine]
        group = [mine[key(part, rule, k, seed)] for seed in seeds]
        epochs = [needed(cell) for cell in group]
        one = _mean([needed(mine.get(key(part, ONE, 1, seed))) for seed in seeds])
        mean = _mean(epochs)
        ratio = "" if one is None or mean is None else f"{mean / one:.2f}"
        gains = [cell["gains"][-1] for cell in group if cell["gains"]]
        gain = f"{statistics.mean(gains):.2f}" if gains else ""
        default = Sma().orthogonal(int(k)) == ("orthogonal" in rule) and rule in DEFAULTS
        rows.append([k, rule + ", the default" * default, str(len(seeds)), _each(epochs), ratio, _curve(group), gain])
    heads = ["learners", "rule", "seeds", "epochs to target", "ratio to one learner's"]
    yield table([*heads, "accuracy in % after each epoch, mean", "gain at the end"], rows)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known and len(known) == len(values) else None


def _each(epochs: Sequence[float | None]) -> str:
    """Their mean and, of several seeds, each."""
    each = ", ".join("not reached" if value is None else f"{value:.2f}" for value in epochs)
    mean = _mean(epochs)
    return f"{mean:.2f} ({each})" if mean is not None and len(epochs) > 1 else each


def _curve(group: Sequence[Found]) -> str:
    """The mean accuracies at the first evaluations in or after whole epochs."""
    curves = []
    for cell in group:
        at: dict[int, float] = {}
        for epoch, accuracy in zip(cell["epochs"], cell["accuracies"], strict=True):
            if epoch >= 1:
                at.setdefault(int(epoch), accuracy)
        curves.append(list(at.values()))
    means = [f"{100 * statistics.mean(each):.2f}" for each in zip(*curves, strict=False)]
    return " ".join(means + ["diverged"] * any(cell.get("code") for cell in group))
