"""The plot of a sweep: its table's columns over the first key, a line for each combination of the others."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mpibow.errors import ConfigError
from mpibow.figure import COLOURS, drawing

from .folder import CellResult
from .grid import text_of
from .summary_table import LEVEL, SummaryColumn, SummaryRow, chosen_keys, measures, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DECADE = 10  # from this ratio of the largest to the smallest value on the axis is logarithmic


def draw(results: Mapping[str, CellResult], asked: Sequence[str] = ()) -> "Figure":
    """A panel for every column of the table, its mean with the interval. Raises ConfigError where there is no key."""
    every = list(results.values())
    keys = chosen_keys(every, asked)
    if not keys:
        raise ConfigError("--plot: the finished cells differ in nothing but the seed: there is nothing to draw")
    found = rows(every, keys)
    panels = measures(found)
    lines = dict[str, list[SummaryRow]]()
    for row in found:
        name = ", ".join(f"{key} {text_of(v)}" for key, v in zip(keys[1:], row.values[1:], strict=True))
        lines.setdefault(name, []).append(row)
    with drawing(len(panels), 2.7) as (figure, grid):
        for i, measure in enumerate(panels):
            _panel(figure.add_subplot(grid[i]), keys[0], lines, measure)
        if len(lines) > 1:
            handles, names = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside upper left", ncols=grid.ncols)
    return figure


def _panel(axes: "Axes", key: str, lines: Mapping[str, Sequence[SummaryRow]], measure: SummaryColumn) -> None:
    firsts = [row.values[0] for part in lines.values() for row in part]
    values = list(dict.fromkeys(v for v in firsts if isinstance(v, int | float) and not isinstance(v, bool)))
    words = list(dict.fromkeys(map(text_of, firsts)))
    numeric = len(values) == len(words)
    for i, (name, part) in enumerate(lines.items()):
        means = [(row, average) for row in part if (average := row.mean(measure)) is not None]
        axes.errorbar(
            [row.values[0] if numeric else words.index(text_of(row.values[0])) for row, _ in means],
            [average.mean for _, average in means],
            yerr=[average.half or 0.0 for _, average in means],
            color=COLOURS[i % len(COLOURS)],
            marker="o",
            markersize=3.5,
            capsize=2.5,
            label=name,
            linestyle="-" if numeric else "none",
        )
    if numeric and min(values) > 0 and max(values) >= DECADE * min(values):
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(values, words)
    if not numeric:
        axes.set_xticks(range(len(words)), words)
    axes.set_title(measure.title)
    axes.set_xlabel(key)
    axes.set_ylabel(f"mean, {LEVEL:.0%} interval")
