"""What bench_batches.py makes of its cells: points of time to target, and a table. Nothing is measured here."""

import math
from dataclasses import dataclass

from benchmarks.averaging.batch_cells import BATCHES, EPOCHS, TARGET, Rate, rates, run_key, speed_key
from benchmarks.sides import Found, table

IMAGES = 60_000  # of an epoch of MNIST
SIDES = {"one learner": "one", "auto": "auto", "PyTorch": "torch"}  # what is said, and in a speed cell


@dataclass(frozen=True)
class Point:
    """A side at a batch size."""

    side: str
    batch: int
    learners: int  # 0: PyTorch's
    lr: float
    trained: bool
    epochs: float | None  # to the target; None where it has not been reached
    speed: float | None  # images/s; None where they have not been measured

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
    """None where nothing has been measured."""
    speed = found.get(speed_key(batch), {})
    learners = {"one learner": 1, "auto": speed.get("learners"), "PyTorch": 0}[side]
    if learners is None:
        return None
    run = found.get(run_key((f"learners {learners}" if learners else side) + rate.name, batch))
    if not run and not speed:
        return None
    epochs = epochs_to_target(run) if run else None
    images = speed.get("images_per_second", {}).get(SIDES[side])
    return Point(side, batch, learners, rate.lr, run is not None, epochs, images)


def epochs_to_target(run: Found) -> float | None:
    """On the line from the last evaluation below it to the first that is not; None if none is."""
    before: tuple[float, float] | None = None
    for epoch, accuracy in zip(run["epochs"], run["accuracies"], strict=True):
        if accuracy >= TARGET:
            if before is None:
                return float(epoch)
            return before[0] + (epoch - before[0]) * (TARGET - before[1]) / (accuracy - before[1])
        before = epoch, accuracy
    return None


def page(found: Found) -> str:
    """What there is, as text."""
    heads = ["batch", "", "learners", "rate", "epochs to target", "images/s", "seconds to target"]
    rows = []
    for point in points(found):
        learners = str(point.learners) if point.learners else ""
        epochs = f"{point.epochs:.2f}" if point.epochs is not None else "not reached" if point.trained else ""
        speed = "" if point.speed is None else f"{point.speed:,.0f}"
        seconds = "" if point.seconds is None else f"{point.seconds:.1f}"
        rows.append([str(point.batch), point.side, learners, f"{point.lr:.4g}", epochs, speed, seconds])
    return (
        f"# Batch sizes: epochs and seconds to {100 * TARGET:g} % of MNIST\n\n"
        f"Made by `python -m benchmarks.averaging.bench_batches`: LeNet, momentum 0.9, a cosine over {EPOCHS} "
        "epochs, the rate 0.003 for batch 8 and in proportion to the batch, for all sides; from batch 32 on with a "
        "warm-up over the first epoch, and also in proportion to the root of the batch without one: given is what "
        "needs fewer epochs. Evaluated every 0.25 epochs; epochs to the target are read off the line between the "
        "last evaluation below it and the first that is not. Images/s are of runs side by side on a quiet machine "
        "(`--only speed`; PyTorch's is eager), seconds epochs x 60,000 / images/s, without those in which the tuner "
        "settled. Every row is one run with one seed. Epochs, and so seconds, differ by chance; how far another "
        "seed would differ is not known.\n\n" + table(heads, rows)
    )
