"""The plot of a range test: loss over learning rate."""

import math
from typing import TYPE_CHECKING

from mpibow.figure import COLOURS, drawing

from .rates import RateTest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(test: RateTest) -> "Figure":
    """The losses, smoothed and as they were, up to where they diverge."""
    with drawing(1, 2.5) as (figure, grid):
        axes = figure.add_subplot(grid[0])
        axes.plot(test.rates, test.losses, color=COLOURS[0], linewidth=0.6, alpha=0.3)
        axes.plot(test.rates, test.smoothed, color=COLOURS[0], linewidth=1.8)
        for name, rate, colour in (
            ("steepest", test.steepest, 2),
            ("least", test.least, 3),
            ("diverged", test.diverged, 1),
        ):
            if rate is not None:
                axes.axvline(rate, color=COLOURS[colour], linestyle="--", label=f"{name}: {rate:.2g}")
        axes.set_xscale("log")
        seen = [loss for loss in test.smoothed if math.isfinite(loss)]
        low = min(seen)
        high = seen[0] + 0.5 * (seen[0] - low) + 0.1 * abs(seen[0])
        axes.set_ylim(low - 0.05 * (high - low), high)
        axes.set_xlabel(f"learning rate of {test.optimiser}")
        axes.set_ylabel("training loss")
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    return figure
