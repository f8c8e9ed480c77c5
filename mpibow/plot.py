"""Draws runs side by side: accuracy, loss, images/s, learners and waits over samples and time.

python -m mpibow.plot runs/NAME                            writes runs/NAME/plot.png, also while the run goes on
python -m mpibow.plot runs/A runs/B --output both.svg      two runs in one figure
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ConfigError
from .figure import COLOURS, NO_DATE, drawing, save
from .run.series import PANELS, Curve, RunLog, curves, read_run
from .system.command import main_of, parser_of, positive
from .system.streams import as_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {"samples": "samples", "epochs": "epochs", "seconds": "training time"}
OVER = {"accuracy": ("samples", "seconds"), "loss": ("samples", "seconds")}  # of the others: seconds
TITLES = {"speed": "images/s", "waits": "learners of rank 0 waiting", "hidden": "all-reduce hidden behind compute"}
UNITS = ((86400, "days"), (3600, "h"), (60, "min"))  # seconds of each, which is of twice as many on

STYLES: dict[str, dict[str, Any]] = {  # by curve; those of ranks are `DASHES`, in order
    "validation": {"marker": "s", "markersize": 3.5, "linewidth": 1.8},
    "validation, top k": {"marker": "v", "markersize": 3.5, "linewidth": 1.0, "linestyle": "--"},
    "test": {"marker": "o", "markersize": 3.5, "linewidth": 1.8},
    "test, top k": {"marker": "^", "markersize": 3.5, "linewidth": 1.0, "linestyle": "--"},
    "training": {"linewidth": 1.0, "alpha": 0.75},
    "averaging": {"linestyle": "--"},
}
DASHES = ("-", "--", ":", "-.")


def draw(
    runs: Sequence[RunLog], panels: Sequence[str] = tuple(PANELS), axis: str | None = None, smooth: int | None = None
) -> "Figure":
    """A figure with a cell for every panel and axis that has curves. Raises ConfigError where none has.

    `axis` is samples, epochs or seconds; None: accuracy and loss over samples and time, the others over time.
    `smooth` entries of training are averaged, a fiftieth of them where it is None.
    """
    cells = []
    for panel in panels:
        for x in (axis,) if axis else OVER.get(panel, ("seconds",)):
            found = [curves(run, panel, x, smooth, aside=len(runs) > 1) for run in runs]
            if any(found):
                cells.append((panel, x, found))
    if not cells:
        raise ConfigError(
            f"{', '.join(run.label for run in runs)}: no entries yet for {', '.join(panels)}; "
            "log.every and evaluate.every set how often a run writes them"
        )
    with drawing(len(cells), 2.5) as (figure, grid):
        told = set()
        columns = grid.ncols
        for i, (panel, x, found) in enumerate(cells):
            row, column = divmod(i, columns)
            axes = figure.add_subplot(grid[row, :] if i + 1 == len(cells) and column == 0 else grid[row, column])
            _draw_cell(axes, panel, x, found, told=panel in told)
            told.add(panel)
        if len(runs) == 1:
            figure.suptitle(runs[0].label, x=0.01, ha="left", fontsize="large")
        else:
            from matplotlib.lines import Line2D

            lines = [Line2D([], [], color=_colour(i), linewidth=3) for i in range(len(runs))]
            figure.legend(
                lines, [run.label for run in runs], loc="outside upper left", ncols=2 * columns, fontsize="medium"
            )
    return figure


def _draw_cell(axes: "Axes", panel: str, x: str, found: list[list[Curve]], *, told: bool) -> None:
    """One panel over one axis: curves of every run in its colour; a legend in grey where a run has several.

    `told`: another cell has that legend.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import EngFormatter, MaxNLocator

    scale = 1.0
    unit = ""
    if x == "seconds":
        longest = max(curve.x[-1] for run in found for curve in run)
        scale, unit = next((entry for entry in UNITS if longest >= 2 * entry[0]), (1, "s"))
    legend = dict[str, dict[str, Any]]()
    for i, run in enumerate(found):
        for j, curve in enumerate(run):
            style = STYLES.get(curve.name, {"linestyle": DASHES[j % len(DASHES)]} if panel == "learners" else {})
            legend.setdefault(curve.name, style)
            style = {**style, "color": _colour(i), "label": curve.name}
            if len(curve.x) == 1:  # no line yet
                style["marker"] = "o"
            if panel in ("waits", "hidden"):  # shares: the axis shows 0 to 1
                style["clip_on"] = False
            over = [value / scale for value in curve.x]
            if curve.raw is not None:
                axes.plot(over, curve.raw, color=_colour(i), linewidth=0.6, alpha=0.22)
            axes.plot(over, curve.y, drawstyle="steps-post" if panel == "learners" else "default", **style)
    axes.set_title(TITLES.get(panel, panel) + (" of all ranks" if panel == "learners" and len(found) > 1 else ""))
    axes.set_xlabel(AXES[x] + (f", {unit}" if unit else ""))
    axes.set_xlim(left=0)
    if x == "samples":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if panel in ("accuracy", "waits", "hidden"):
        axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.4g}%")
    values = [y for run in found for curve in run for y in curve.raw or curve.y]
    if panel == "loss" and 0 < 10 * min(values) < max(values):  # easier to compare so
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    if panel == "speed":
        axes.yaxis.set_major_formatter("{x:,.0f}")
    if panel == "learners":
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if panel in ("speed", "learners", "waits"):
        axes.set_ylim(bottom=0)
    if panel == "hidden":
        axes.set_ylim(0, 1)
    if not told and (len(legend) > 1 or (panel == "learners" and len(found) == 1)):
        lines = [Line2D([], [], **{**style, "color": "#555555"}) for style in legend.values()]
        axes.legend(lines, list(legend), labelcolor="#333333", fontsize="small")


def _colour(run: int) -> str:
    return COLOURS[run % len(COLOURS)]


def plot(arguments: argparse.Namespace) -> Path:
    """Draws the figure of the arguments and returns its path. Raises ConfigError, RecordError or MpibowError."""
    paths = [run_of(path) for path in arguments.runs]
    labels = arguments.labels.split(",") if arguments.labels else _labels(paths)
    panels = arguments.panels.split(",")
    output = arguments.output or (paths[0] if len(paths) == 1 else Path()) / "plot.png"
    if len(labels) != len(paths):
        raise ConfigError(
            f"--labels: must be one for each of {len(paths)} run(s), got {len(labels)}: {arguments.labels}"
        )
    for panel in panels:
        if panel not in PANELS:
            raise ConfigError(f"--panels: must be of {', '.join(PANELS)}, got '{panel}'")
    if output.suffix not in NO_DATE:
        raise ConfigError(f"--output: must end in {', '.join(NO_DATE)}, got '{output}'")
    runs = [read_run(path, label.strip()) for path, label in zip(paths, labels, strict=True)]
    save(draw(runs, panels, arguments.x, arguments.smooth), output)
    return output


def run_of(path: Path) -> Path:
    """The run directory; for a checkpoint, the one of its run."""
    return path.resolve().parent.parent if (path / "checkpoint.json").is_file() else path


def _labels(paths: Sequence[Path]) -> list[str]:
    """The runs' own names, or whole paths where two have the same."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def parser() -> argparse.ArgumentParser:
    made = parser_of(
        "plot", "Draws accuracy, loss, images/s, learners and waiting times of runs, under way or finished."
    )
    made.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run directory, as runs/NAME, or a checkpoint of it"
    )
    made.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=".png, .svg or .pdf (default: RUN/plot.png, for several runs plot.png)",
    )
    made.add_argument(
        "--x",
        choices=AXES,
        help="x axis of all panels (default: accuracy and loss over samples and over time, the others over time)",
    )
    made.add_argument(
        "--smooth",
        type=positive,
        metavar="N",
        help="average over N training entries (default: a fiftieth of them; 1: no smoothing)",
    )
    made.add_argument("--labels", metavar="A,B,...", help="names of the runs in the plot (default: their directories)")
    made.add_argument(
        "--panels", default=",".join(PANELS), metavar="A,B,...", help="panels to draw (default: %(default)s)"
    )
    return made


main = main_of(parser, lambda arguments: print(plot(arguments)))

if __name__ == "__main__":
    as_command(main)
