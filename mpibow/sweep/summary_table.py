"""The table of a sweep: a row for each combination of some keys, means and intervals over all other differences."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import numpy as np

from mpibow.errors import ConfigError
from mpibow.system import JsonObject

from .folder import FREE, CellResult
from .grid import text_of

LEVEL = 0.95  # of the intervals


@dataclass(frozen=True)
class SummaryColumn:
    """An entry of summary.json as a column: the title, the key, its factor, and its decimals."""

    title: str
    key: str
    scale: float = 1.0
    digits: int = 2


ACCURACIES = (
    SummaryColumn("validation accuracy, %", "validation_accuracy", 100.0),
    SummaryColumn("test accuracy, %", "accuracy", 100.0),
    SummaryColumn("average's validation accuracy, %", "average_validation_accuracy", 100.0),
    SummaryColumn("average's test accuracy, %", "average_accuracy", 100.0),
)
LOSSES = (
    SummaryColumn("validation loss", "validation_loss", digits=4),
    SummaryColumn("test loss", "test_loss", digits=4),
)
EFFORT = (SummaryColumn("epochs to target", "epochs_to_target"), SummaryColumn("seconds", "seconds", digits=1))


@dataclass(frozen=True)
class Mean:
    """The mean of `count` numbers from `of` runs, and half of its interval at LEVEL; None for one number."""

    mean: float
    half: float | None
    count: int
    of: int

    def text(self, digits: int) -> str:
        half = "" if self.half is None else f" ± {self.half:.{digits}f}"
        return f"{self.mean:.{digits}f}{half}" + (f" ({self.count} of {self.of})" if self.count < self.of else "")


@dataclass(frozen=True)
class SummaryRow:
    """The runs whose keys have these values."""

    values: tuple[Any, ...]
    results: tuple[CellResult, ...]

    def mean(self, measure: SummaryColumn) -> Mean | None:
        """The mean over the runs; None where no run has such a number."""
        found = [
            measure.scale * number
            for result in self.results
            if result.summary is not None
            and isinstance(number := result.summary.get(measure.key), int | float)
            and math.isfinite(number)
        ]
        return mean_of(found, len(self.results) - self.diverged) if found else None

    @property
    def diverged(self) -> int:
        return sum(result.diverged for result in self.results)


def mean_of(numbers: Sequence[float], of: int) -> Mean:
    n = len(numbers)
    half = students(n - 1, LEVEL) * stdev(numbers) / math.sqrt(n) if n > 1 else None
    return Mean(mean(numbers), half, n, of)


def students(freedom: int, level: float) -> float:
    """The t with P(|T| <= t) = level, for T of Student's distribution with these degrees of freedom.

    With t = sqrt(freedom) tan(a), P is the integral of cos^(freedom - 1) from 0 to a over that to pi / 2.
    """
    edges = np.linspace(0, np.pi / 2, 2**16 + 1)
    mass = np.cumsum(np.cos((edges[1:] + edges[:-1]) / 2) ** (freedom - 1))
    return math.sqrt(freedom) * math.tan(np.interp(level * mass[-1], mass, edges[1:]))


def differing(results: Sequence[CellResult]) -> list[str]:
    """The keys that differ between runs: those that were typed, in that order, then other settings."""

    def differs(key: str) -> bool:
        return len({text_of(result.value(key)) for result in results}) > 1

    typed = dict.fromkeys(key for result in results for key in result.settings)
    # A name that differs decides on what is beside it.
    known = (*(f"{key.removesuffix('.name') if differs(key) else key}." for key in typed), *FREE)
    others = sorted({path for result in results for path in leaves(result.config)})
    return [key for key in (*typed, *(path for path in others if not f"{path}.".startswith(known))) if differs(key)]


def leaves(settings: JsonObject, prefix: str = "") -> Iterator[str]:
    """The paths, key.key, of all settings that are no mappings."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def rows(results: Sequence[CellResult], keys: Sequence[str]) -> list[SummaryRow]:
    """The rows of the table: in rising order where the values are numbers, else in order of appearance."""
    groups = dict[tuple[str, ...], list[CellResult]]()
    for result in results:
        groups.setdefault(tuple(text_of(result.value(key)) for key in keys), []).append(result)
    made = [SummaryRow(tuple(map(group[0].value, keys)), tuple(group)) for group in groups.values()]
    places = []
    for column in zip(*(row.values for row in made), strict=True):
        words = list(map(text_of, column))
        numeric = all(isinstance(value, int | float) for value in column)
        places.append(column if numeric else list(map(words.index, words)))
    return [made[i] for i in sorted(range(len(made)), key=lambda i: [place[i] for place in places])]


def measures(found: Sequence[SummaryRow]) -> list[SummaryColumn]:
    """The measures for which any run has a number; losses where there are no accuracies."""
    shown = [measure for measure in ACCURACIES if any(row.mean(measure) for row in found)]
    return [m for m in (*(shown or LOSSES), *EFFORT) if any(row.mean(m) for row in found)]


def chosen_keys(results: Sequence[CellResult], asked: Sequence[str]) -> list[str]:
    """The keys of the rows: those `asked` for, or all that differ but the seed. Raises ConfigError."""
    for key in asked:
        if all(result.value(key) is None for result in results):
            raise ConfigError(
                f"--table: no run has a setting {key}; the keys that differ: {', '.join(differing(results)) or 'none'}"
            )
    return list(asked) or [key for key in differing(results) if key != "seed"]


def table(results: Mapping[str, CellResult], asked: Sequence[str] = ()) -> str:
    """The table in Markdown, and a line about it. Raises ConfigError where there is no result, or no such key."""
    if not results:
        raise ConfigError("--table: no cell has ended yet")
    every = list(results.values())
    keys = chosen_keys(every, asked)
    found = rows(every, keys)
    columns = measures(found)
    best = best_of(found)
    lines = [[*keys, "runs", *(column.title for column in columns)]]
    for row in found:
        runs = str(len(row.results)) + (f", {row.diverged} diverged" if row.diverged else "")
        cells = [
            *map(text_of, row.values),
            runs,
            *(average.text(column.digits) if (average := row.mean(column)) else "" for column in columns),
        ]
        lines.append([f"**{cell}**" if row is best and cell else cell for cell in cells])
    return _aligned(lines) + "\n" + _about([key for key in differing(every) if key not in keys], best)


def best_of(found: Sequence[SummaryRow]) -> SummaryRow | None:
    """The row with the highest mean accuracy on validation data; None without such data or for a tie."""
    means = [(average.mean, row) for row in found if (average := row.mean(ACCURACIES[0])) is not None]
    best = [row for accuracy, row in means if accuracy == max(other for other, _ in means)]
    return best[0] if len(best) == 1 < len(means) else None


def _about(over: Sequence[str], best: SummaryRow | None) -> str:
    half = f"half of its {LEVEL:.0%} interval (Student's t)"
    text = f"Mean over {', '.join(over)} ± {half}, without the runs that diverged" if over else "One run a row"
    return f"{text}.{' Bold: the best on validation data.' if best else ''}\n"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    ruled = [padded[0], ["-" * width for width in widths], *padded[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in ruled)
