"""The numbers of a net that was read, by its plan, and whether they are those of what it was read from."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from mpibow.errors import ConfigError
from mpibow.graph.graph import Array
from mpibow.graph.layout import initial_weights
from mpibow.graph.plan import Plan

Arrays: TypeAlias = Mapping[str, Array]


def run_plan(plan: Plan, inputs: Arrays, gradients: Array | None = None) -> tuple[Arrays, Arrays]:
    """Outputs and running statistics by name, from the net's first weights; gradients go into the flat array."""
    weights, statistics = (initial_weights(layout, 0, plan.weight_dtype) for layout in (plan.layout, plan.statistics))
    bound = plan.bind(weights, gradients, statistics)
    for name, array in inputs.items():
        np.copyto(bound.inputs[name], array, casting="unsafe")
    with np.errstate(all="ignore"):
        bound.run()
    return bound.outputs, plan.statistics.unpacked(statistics)


def refuse_difference(
    gives: str, ours: Arrays, than: str, theirs: Arrays, remedy: str, close: float, least: float = 0.0
) -> None:
    """Raises ConfigError where numbers differ by more than `close` of an array's largest; NaN differs from any.

    Arrays whose largest number is below `least` are compared with that.
    """
    for name, array in theirs.items():
        x, y, rule = np.asarray(ours[name], float), np.asarray(array, float), f"{gives} {name} {than}: "
        if x.shape != y.shape:
            raise ConfigError(f"{rule}{x.shape}, not {y.shape}; {remedy}")
        with np.errstate(invalid="ignore"):
            gap, size = np.abs(np.where(x == y, 0.0, x - y)).max(initial=0.0), largest(y)
        if not gap <= close * max(size, least):
            raise ConfigError(f"{rule}they differ by {gap:.3g}, the largest number is {size:.3g}; {remedy}")


def largest(*arrays: Array) -> float:
    """The largest of the finite numbers, without signs."""
    return max((float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in arrays), default=0.0)
