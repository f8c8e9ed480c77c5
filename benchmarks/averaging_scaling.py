"""The page's tables over the length of the schedule: what it costs to be as accurate as one learner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import averaging_cells as plan
from averaging_cells import Found, by_seed, chosen, of_length
from averaging_numbers import Interval, bootstrap, mean_and_deviation, reach
from sides import table

SCHEDULES = f"""Whole trainings of each length, each with its own cosine to 0, at one learner's best rate. R: the
shortest schedule that is as accurate as one learner with a warm-up after {plan.EPOCHS} epochs, over {plan.EPOCHS}.
Between two lengths the mean accuracy is linear in the logarithm of epochs. The interval resamples the seeds that have
every length.
"""
Curve = tuple[Sequence[float], float]  # a seed's accuracies of every length, and that of one learner


def schedules(found: Found, net: str) -> Iterator[str]:
    rate = chosen(found, net, plan.ONE)
    if rate is None or not any(cell.startswith(f"{plan.SCHEDULES} | {net} |") for cell in found):
        return
    yield f"\n## Schedules: {net}\n\n{SCHEDULES}\n"
    base, rows = by_seed(found, *_place(net, plan.WARM_ONE, rate, plan.EPOCHS), "mean"), []
    for arm in plan.SCHEDULED:
        lengths = [by_seed(found, *_place(net, arm, rate, epochs), "mean") for epochs in plan.SHARES]
        shared = sorted(base.keys() & set.intersection(*(set(each) for each in lengths)))
        curves = [([each[seed] for each in lengths], base[seed]) for seed in shared]
        needed = _text(bootstrap(curves, _needed)) if curves else ""
        means = [mean_and_deviation(list(each.values())) if each else "" for each in lengths]
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
