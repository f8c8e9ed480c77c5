"""The page's tables of more epochs and of more learners: what it costs to be as accurate as one learner."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, harmonic_mean

from benchmarks.averaging import sma_arms as plan
from benchmarks.averaging.sma_cells import Found, by_seed, chosen, key, of_count, of_length
from benchmarks.averaging.sma_numbers import (
    Interval,
    bootstrap,
    deviation,
    difference,
    mean_and_deviation,
    noise_scale,
    reach,
    told,
)
from benchmarks.sides import table
from mpibow.sync.gain import CERTAIN

SCHEDULES = f"""Whole trainings of each length, each with its own cosine to 0, at one learner's best rate. R: the
shortest schedule that reaches the accuracy of one learner with a warm-up after {plan.EPOCHS} epochs, divided by
{plan.EPOCHS}. Between two lengths the mean accuracy is linear in the logarithm of epochs. All figures are of the seeds
that have every length.
"""
LEARNERS = f"""Whole trainings of {plan.EPOCHS} epochs at one learner's best rate, with a warm-up of an epoch. Noise
scale: that of the steps, in samples, from the gain G at the end: batch x (G - 1) / (1 - G / k). The steps have momentum
0.9: a gradient's noise scale is up to 19 times as large. One learner measures none; its is that of the fewest learners.
The gain grows over the first {CERTAIN} iterations, which {plan.COUNTS[-1]} learners do not reach.
"""
Curve = tuple[Sequence[float], float]  # a seed's accuracies of every length, and that of one learner


def heading(title: str, name: str) -> str:
    """That of a table, and its command."""
    return f"\n## {title}\n\n    python -m benchmarks.averaging.bench_sma --only {shlex.quote(name)}\n\n"


def schedules(found: Found, net: str) -> Iterator[str]:
    rate = chosen(found, net, plan.ONE)
    if rate is None or not any(cell.startswith(f"{plan.SCHEDULES} | {net} |") for cell in found):
        return
    yield heading(f"Schedules: {net}", plan.SCHEDULES) + SCHEDULES + "\n"
    base, rows = by_seed(found, *_place(net, plan.WARM_ONE, rate, plan.EPOCHS), "mean"), []
    for arm in plan.SCHEDULED:
        lengths = [by_seed(found, *_place(net, arm, rate, epochs), "mean") for epochs in plan.SHARES]
        shared = sorted(base.keys() & set.intersection(*(set(each) for each in lengths)))
        curves = [([each[seed] for each in lengths], base[seed]) for seed in shared]
        needed = _text(bootstrap(curves, _needed)) if curves else ""
        means = [mean_and_deviation([each[seed] for seed in shared]) if shared else "" for each in lengths]
        rows.append([arm, *means, str(len(shared)), needed])
    yield table(["accuracy, %", *(f"{epochs} epochs" for epochs in plan.SHARES), "seeds", "R"], rows)


def _place(net: str, arm: str, rate: float, epochs: int) -> tuple[str, str, str]:
    name, row = of_length(arm, rate, epochs)
    return name, net, row


def _needed(curves: Sequence[Curve]) -> float:
    """R of the mean over seeds."""
    accuracies = [sum(each) / len(curves) for each in zip(*(own for own, _ in curves), strict=True)]
    return reach(plan.SHARES, accuracies, sum(base for _, base in curves) / len(curves)) / plan.EPOCHS


def _text(needed: Interval) -> str:
    low, high = plan.SHARES[0] / plan.EPOCHS, plan.SHARES[-1] / plan.EPOCHS
    value, *ends = (
        f"≤{low:.1f}" if each <= low else f">{high:.1f}" if each > high else f"{each:.2f}"
        for each in (needed.value, needed.low, needed.high)
    )
    return value if needed.seeds < 2 else f"{value} [{', '.join(ends)}]"


@dataclass(frozen=True)
class Count:
    """What came of `learners` learners: figures by seed, and the seeds' harmonic mean noise scale in samples."""

    arm: str
    learners: int
    accuracies: dict[int, float]
    gains: dict[int, float]  # at the end
    means: dict[int, float]  # of the gain over the run; those of older cells are not kept
    noise: float

    @property
    def ratio(self) -> float:
        """The samples of an iteration over the noise scale."""
        return self.learners * plan.BATCH / self.noise


def counts(found: Found, net: str) -> list[Count]:
    """Those of each arm in the order of learners; one learner, which is the same run in each, has the next's noise."""
    rate, points = chosen(found, net, plan.ONE), list[Count]()
    for arm in plan.COUNTED if rate is not None else ():
        noise = math.nan
        for learners in reversed(plan.COUNTS):
            name, row = of_count(arm, rate, learners)
            accuracies, gains, means = (by_seed(found, name, net, row, kind) for kind in ("mean", "gain", "gain_mean"))
            taken = min(plan.EPOCHS * plan.TRAIN / (learners * plan.BATCH * CERTAIN), 1.0)  # of the measured gain
            whole = [1.0 + (gain - 1.0) / taken for gain in gains.values()]
            known = [noise_scale(gain, learners, plan.BATCH) for gain in whole if 1.0 < gain < learners]
            noise = harmonic_mean(known) if known else noise
            if accuracies:
                points.append(Count(arm, learners, accuracies, gains, means, noise))
    return sorted(points, key=lambda point: (plan.COUNTED.index(point.arm), point.learners))


def learners(found: Found, net: str) -> Iterator[str]:
    points = counts(found, net)
    if not any(point.learners not in (1, plan.K) for point in points):
        return
    yield heading(f"Learners: {net}", plan.LEARNERS) + LEARNERS + "\n"
    rows, alone = [], points[0].accuracies if points[0].learners == 1 else {}
    rivals = {point.learners: point.accuracies for point in points if point.arm == plan.GAINED}
    for point in points:
        less = difference(point.accuracies, alone) if point.learners > 1 else None
        more = None
        if point.learners > 1 and point.arm != plan.GAINED:
            more = difference(point.accuracies, rivals.get(point.learners, {}))
        rows.append(
            [
                point.arm,
                str(point.learners),
                f"{point.learners * plan.BATCH:,}",
                f"{fmean(point.gains.values()):.1f}",
                f"{fmean(point.means.values()):.1f}" if point.means else "",
                *(["", ""] if math.isnan(point.noise) else [f"{point.noise:,.0f}", f"{point.ratio:.3f}"]),
                str(len(point.accuracies)),
                deviation(point.accuracies),
                told(less),
                told(more),
            ]
        )
    heads = ["arm", "learners", "samples", "gain at the end", "mean gain", "noise scale", "samples / noise scale"]
    yield table([*heads, "seeds", "accuracy, %", "minus one learner, points", "minus S-SGD, points"], rows)


FIXED = f"""Whole trainings of {plan.EPOCHS} epochs with {plan.FIXED_COUNT} learners at one learner's best rate, with a
warm-up of {plan.FIXED_WARM_UP} epochs, as these gains are too large for the first iterations. The gain is set, not
measured: SMA and S-SGD make steps of the same length and number, and differ by the weights at which they take
gradients. Spread: |w_i - W| / |W|.
"""


def fixed(found: Found, net: str) -> Iterator[str]:
    rows = []
    for gain in plan.FIXED_GAINS:
        cells = [(plan.FIXED, net, f"{arm}, gain {gain}") for arm in plan.FIXED_RULES]
        ours, theirs = (by_seed(found, *cell, "mean") for cell in cells)
        if (more := difference(ours, theirs)) is not None:
            means = (deviation(each) for each in (ours, theirs))
            spread = fmean(by_seed(found, *cells[0], "distance").values())
            rows.append([str(gain), str(more.seeds), f"{spread:.4f}", *means, told(more)])
    if rows:
        yield heading(f"The same gain: {net}", plan.FIXED) + FIXED + "\n"
        heads = ["gain", "seeds", "spread of SMA", *(f"{arm}, accuracy, %" for arm in plan.FIXED_RULES)]
        yield table([*heads, "SMA minus S-SGD, points"], rows)


UNTUNED = f"""Whole trainings of {plan.NETS[plan.FULL].epochs} epochs on all 50,000 training images, padded by 4 and
flipped, with a warm-up of an epoch, at the rate that is one learner's best on {plan.TRAIN:,} images. Nothing differs
but the number of learners, and nothing was tuned for any of them.
"""


def untuned(found: Found) -> Iterator[str]:
    rows, alone = list[list[str]](), by_seed(found, plan.UNTUNED, plan.FULL, "1 learners", "mean")
    for count in plan.UNTUNED_COUNTS:
        row = plan.UNTUNED, plan.FULL, f"{count} learners"
        accuracies, gains = (by_seed(found, *row, figure) for figure in ("mean", "gain"))
        if accuracies:
            less = difference(accuracies, alone) if count > 1 else None
            means = deviation(accuracies)
            rows.append([str(count), f"{fmean(gains.values()):.1f}", str(len(accuracies)), means, told(less)])
    if rows:
        yield heading(f"Untuned: {plan.FULL}", plan.UNTUNED) + UNTUNED + "\n"
        heads = ["learners", "gain at the end", "seeds", "accuracy, %", "minus one learner, points"]
        yield table(heads, rows)


GROWTH = f"""Validation accuracy in %, seed {plan.GRID_SEED}, over the iterations until the measured gain is taken
whole: SMA with a warm-up of an epoch, at its best rate. This table chose the {CERTAIN} iterations of mpibow.
"""


def growths(found: Found, net: str) -> Iterator[str]:
    rows = []
    for count in plan.GROWN:
        cells = [found.get(key(plan.GROWTH, net, f"{count} learners, {growth} iterations", plan.GRID_SEED))
                 for growth in plan.GROWTHS]  # fmt: skip
        if any(cells):
            rows.append([str(count), *("" if cell is None else f"{100 * cell['validation']:.2f}" for cell in cells)])
    if rows:
        yield heading(f"Growth of the gain: {net}", plan.GROWTH) + GROWTH + "\n"
        yield table(["learners", *(f"{growth} iterations" for growth in plan.GROWTHS)], rows)
