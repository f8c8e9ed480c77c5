"""Draws bench_sma.py's table of learners: accuracy over the samples of an iteration, in noise scales."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from matplotlib import style, ticker
from matplotlib.figure import Figure

from benchmarks.averaging.sma_arms import BATCH, COUNTED, EPOCHS
from benchmarks.averaging.sma_scaling import Count
from mpibow.errors import MpibowError
from mpibow.figure import COLOURS, LOOK, save

LINES = dict(zip(COUNTED, ("SMA", "SMA, alpha 1/learners", "S-SGD, measured gain"), strict=True))


def draw(points: Sequence[Count], path: Path) -> Path:
    """The figure at `path`. Raises MpibowError where no number of learners has shown its noise."""
    known = [point for point in points if not math.isnan(point.ratio)]
    if not known:
        raise MpibowError("nothing to draw yet: no cell of --only learners has run")
    with style.context(["default", LOOK]):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for number, (colour, arm) in enumerate(zip(COLOURS, LINES, strict=False)):
            mine = [point for point in known if point.arm == arm]
            means = [100 * fmean(point.accuracies.values()) for point in mine]
            values = [list(point.accuracies.values()) for point in mine]
            bars = [100 * stdev(each) if len(each) > 1 else 0.0 for each in values]
            look = {"marker": "o", "markersize": 3.5, "linewidth": 1.8, "color": colour, "capsize": 2}
            axes.errorbar([point.ratio for point in mine], means, bars, label=LINES[arm], **look)
            for point, mean in zip(mine, means, strict=True):
                text = {"textcoords": "offset points", "ha": "left", "fontsize": "x-small", "color": colour}
                axes.annotate(str(point.learners), (point.ratio, mean), (4, 4 - 12 * number), **text)
        axes.set_title(f"accuracy after {EPOCHS} epochs, %")
        axes.set_xscale("log")
        axes.set_xlabel(f"samples of an iteration / noise scale (numbers: learners of batch {BATCH})")
        axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axes.legend()
    save(figure, path)
    return path
