"""What bench_sma.py makes of its cells: points of time to target, and tables. Nothing is measured here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sides import table, with_error
from sma_cells import (
    BATCHES,
    CIFAR_EPOCH,
    DEFAULT,
    EPOCHS,
    NO_MORE,
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
        "Epochs to a target are read off the line between the last evaluation below it and the first that is not. "
        "±: the mean over seeds and its standard error; epochs have a mean where all seeds reached the target. A row "
        "of one seed is one run: how far another seed would differ is not known.\n",
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
        "Evaluated every 0.25 epochs. Images/s are of runs side by side on a quiet machine (`--only speed`; PyTorch's "
        "is eager), seconds epochs x 60,000 / images/s, without those in which the tuner settled. Epochs, and so "
        "seconds, are of one seed where the table says so, and differ by chance: the seeds of the next table show how "
        "much.\n\n"
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
    about = (
        "One learner is SGD under every rule. The orthogonal step is Muon's (Jordan et al., 2024), another optimiser "
        "than SGD: its row beside one learner's compares two optimisers. It was chosen on the runs of this table and "
        "the next, so these do not test it. As published: Crossbow's rule with both momenta 0.9, of the learners and "
        "of the centre, as its release's scripts for ResNets and VGG set them (its script for LeNet sets 0 for the "
        "learners). EA-SGD: alpha 1 / learners, period 1. The runs were made with the settings of their time; today's "
        "are in benchmarks/sma_cells.py. "
    )
    short = f"Epochs to {TARGET:.0%}; in their place, where a seed did not get there, the accuracy at the end, in %"
    yield from _rules(found, "mnist", title, about, short, lambda cell: epochs_to(TARGET, cell), short_epochs=True)


def _cifar(found: Found) -> Iterator[str]:
    target = cifar_target(found)
    about = (
        ""
        if target is None
        else f"The target, {target:.2%}, is one learner's accuracy after {CIFAR_EPOCH} epochs: one point of one run. A "
        "run that ends just below it is hardly worse than one that just reaches it, so compare the accuracies. "
    )
    short = "Accuracy at the end, in %"
    title = "ResNet-20 on CIFAR-10, batch 16"
    yield from _rules(found, "cifar", title, about, short, lambda cell: epochs_to(target, cell), short_epochs=False)


def _rules(
    found: Found, part: str, title: str, about: str, short: str, needed: Callable[[Found | None], float | None],
    *, short_epochs: bool,
) -> Iterator[str]:  # fmt: skip
    """Two tables of rules over numbers of learners: the short one, which is the README's, and all figures."""
    mine = {name: cell for name, cell in found.items() if name.startswith(f"{part} |")}
    if not mine:
        return
    yield f"\n## {title}\n\n{about}`{next(iter(mine.values()))['command']}` and the like.\n\n"
    order = (ONE, *RULES, *NO_MORE)
    places = sorted({tuple(name.split(" | ")[1:3]) for name in mine}, key=lambda at: (int(at[1]), order.index(at[0])))
    rows, brief, counts = [], {}, set()
    for rule, k in places:
        seeds = [seed for seed in SEEDS if key(part, rule, k, seed) in mine]
        group = [mine[key(part, rule, k, seed)] for seed in seeds]
        epochs = [needed(cell) for cell in group]
        one = _mean([needed(mine.get(key(part, ONE, 1, seed))) for seed in seeds])
        mean = _mean(epochs)
        ratio = "" if one is None or mean is None else f"{mean / one:.2f}"
        gains = [cell["gains"][-1] for cell in group if cell["gains"]]
        gain = f"{statistics.mean(gains):.2f}" if gains else ""
        default = rule == DEFAULT
        last = "diverged" if any(cell.get("code") for cell in group) else _last(group)
        rows.append(
            [k, rule + ", the default" * default, str(len(seeds)), _each(epochs), ratio, last, _curve(group), gain]
        )
        reached = _each(epochs, each=False) if short_epochs and mean is not None else ""
        cell = reached or last + " %" * (short_epochs and last != "diverged")
        brief[rule, k] = f"**{cell}**" if default else cell
        counts.add(len(seeds))
    learners = list(dict.fromkeys(k for _, k in places))
    rules = [rule for rule in order if any(each == rule for each, _ in places)]
    of = "one seed" if counts == {1} else f"{' to '.join(map(str, sorted({min(counts), max(counts)})))} seeds"
    yield f"{short}; {of}; bold: the default.\n\n"
    yield table(
        ["rule", "1 learner", *learners[1:]] if learners[0] == "1" else ["rule", *learners],
        [[rule, *(brief.get((rule, k), "") for k in learners)] for rule in rules],
    )
    heads = ["learners", "rule", "seeds", "epochs to target", "ratio to one learner's", "accuracy at the end, in %"]
    yield f"\n{table([*heads, 'after each epoch, mean', 'gain at the end'], rows)}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known and len(known) == len(values) else None


def _each(epochs: Sequence[float | None], *, each: bool = True) -> str:
    """Their mean and its error and, of several seeds, each."""
    known = [value for value in epochs if value is not None]
    single = ", ".join("not reached" if value is None else f"{value:.2f}" for value in epochs)
    if not known or len(known) < len(epochs):
        return single
    return with_error(known) + f" ({single})" * (each and len(known) > 1)


def _last(group: Sequence[Found]) -> str:
    return with_error([100 * cell["accuracies"][-1] for cell in group])


def _curve(group: Sequence[Found]) -> str:
    """The mean accuracies at the first evaluations in or after whole epochs."""
    curves = []
    for cell in group:
        at: dict[int, float] = {}
        for epoch, accuracy in zip(cell["epochs"], cell["accuracies"], strict=True):
            if epoch >= 1:
                at.setdefault(int(epoch), accuracy)
        curves.append(list(at.values()))
    return " ".join(f"{100 * statistics.mean(each):.2f}" for each in zip(*curves, strict=False))
