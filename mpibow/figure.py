"""Figures: matplotlib where it is installed, how all of them look, and how one is written."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import MpibowError, install
from .run import directory

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpec

# Okabe and Ito's colours for the colour-blind, without yellow; a run keeps its colour in every panel.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LOOK: dict[str, object] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "figure.dpi": 120,
    "font.size": 9.0,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "svg.hashsalt": "mpibow",  # the same names in every file
    "text.parse_math": False,  # labels are plain text, dollars too
}
NO_DATE = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # the same bytes


@contextmanager
def drawing(panels: int, height: float) -> Iterator[tuple["Figure", "GridSpec"]]:
    """A figure of so many panels in up to two columns, each about so many inches high, and their grid, in our look.

    Raises MpibowError where matplotlib, which only figures need, is not installed.
    """
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MpibowError(f"matplotlib is not installed: {install('plot')}") from error
    columns = min(panels, 2)
    rows = -(-panels // columns)
    with style.context(["default", LOOK]):
        figure = Figure(figsize=(5.2 * columns + 0.6, height * rows + 0.9), layout="constrained")
        yield figure, figure.add_gridspec(rows, columns)  # one grid for all: several would overlap


def save(figure: "Figure", path: Path) -> None:
    """Writes the figure whole or not at all, in the format of the suffix; the same figure gives the same bytes."""
    from matplotlib import style

    content = BytesIO()
    with style.context(["default", LOOK]):
        figure.savefig(content, format=path.suffix[1:], metadata=NO_DATE[path.suffix])
    directory.write(path, content.getvalue())
