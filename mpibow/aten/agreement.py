"""The numbers of a net that was read, by its plan, and whether they are those of what it was read from."""

from collections.abc import Mapping

import numpy as np

from mpibow.errors import ConfigError
from mpibow.graph import Array, Plan, initial_weights

Arrays = Mapping[str, Array]


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
    """Raises ConfigError where numbers differ by more than `close` of the largest of their size; NaN differs from any.

    Numbers of a size of which all are below `least` are compared with that.
    """
    for name, array in theirs.items():
        x = np.asarray(ours[name], float)
        y = np.asarray(array, float)
        rule = f"{gives} {name} {than}: "
        if x.shape != y.shape:
            raise ConfigError(f"{rule}{x.shape}, not {y.shape}; {remedy}")
        tops = sizes(y)
        with np.errstate(invalid="ignore", over="ignore"):
            gaps = np.abs(np.where(x == y, 0.0, x - y))
            top = tops[np.searchsorted(tops[:-1], np.abs(y))]
        far = ~(gaps <= close * np.maximum(top, least))
        if far.any():
            raise ConfigError(
                f"{rule}they differ by {gaps[far].max():.3g}, the largest number is {top[far].max():.3g}; {remedy}"
            )


def sizes(array: Array) -> Array:
    """The largest number of each size, in rising order: of a size are numbers without a gap of a thousand times.

    Numbers below 1 are of one size, and are all of the array's largest size where that is below 1. So numbers that hide
    others, such as -1e30 of a mask, are no measure of these.
    """
    most = largest(array)
    found = np.sort(np.abs(array[np.isfinite(array)]).clip(min(most, 1.0)), axis=None)
    return np.append(found[:-1][found[1:] / 1000 > found[:-1]], most)


def largest(*arrays: Array) -> float:
    """The largest of the finite numbers, without signs."""
    return max((float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in arrays), default=0.0)
