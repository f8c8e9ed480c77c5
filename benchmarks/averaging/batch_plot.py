"""Draws bench_batches.py's cells: time to target over batch size, and the epochs and images/s that it is made of."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib import style, ticker
from matplotlib.figure import Figure

from benchmarks.averaging.batch_cells import BATCHES, TARGET
from benchmarks.averaging.batch_page import SIDES, Point
from mpibow.errors import MpibowError
from mpibow.figure import COLOURS, LOOK, save

PANELS: dict[str, Callable[[Point], float | None]] = {
    f"seconds to {TARGET:.0%} of MNIST": lambda point: point.seconds,
    "epochs": lambda point: point.epochs,
    "images/s": lambda point: point.speed,
}
LINES = {"one learner": "1 learner", "auto": "auto, its learners below", "PyTorch": "PyTorch"}


def draw(points: Sequence[Point], path: Path) -> Path:
    """The figure at `path`. Raises MpibowError where no side has been measured at any batch."""
    panels = list(PANELS.items())
    if not any(value(point) is not None for _, value in panels for point in points):
        raise MpibowError("nothing to draw yet: no cell has run")
    with style.context(["default", LOOK]):
        figure = Figure(figsize=(8.6, 4.2), layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=(1.7, 1))
        for place, (title, value) in zip((grid[:, 0], grid[0, 1], grid[1, 1]), panels, strict=True):
            axes = figure.add_subplot(place)
            for colour, side in zip(COLOURS, SIDES, strict=False):
                mine = {point.batch: value(point) for point in points if point.side == side}
                y = [mine.get(batch) for batch in BATCHES]  # a gap where there is none: a line would make one up
                y = [math.nan if each is None else each for each in y]
                axes.plot(BATCHES, y, marker="o", markersize=3.5, linewidth=1.8, color=colour, label=LINES[side])
            axes.set_title(title)
            axes.set_xscale("log", base=2)
            axes.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
            axes.set_xlim(BATCHES[0] / 1.3, BATCHES[-1] * 1.3)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
            axes.tick_params(which="minor", bottom=False)
        figure.axes[0].set_xlabel("batch size of a learner, and of PyTorch")
        figure.axes[0].legend(*figure.axes[0].get_legend_handles_labels())
        for point in points:
            if point.side == "auto" and point.seconds is not None:
                place = (point.batch, point.seconds)
                text = {"textcoords": "offset points", "ha": "center", "fontsize": "x-small", "color": COLOURS[1]}
                figure.axes[0].annotate(str(point.learners), place, (0, -11), **text)
    save(figure, path)
    return path
