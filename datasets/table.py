"""Writes a table as records: mpibow convert table --source houses.csv --target price --output data/houses

--source is a CSV file in UTF-8, whose first line names the columns, or a Parquet file. A column of numbers is scaled by
the mean and standard deviation of the training rows; in any other column the names that occur are numbered. The target
is --target, or the last column: numbers to predict, or classes if it has names or --classes is given. The manifest
keeps how every column was converted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from mpibow.convert import arguments
from mpibow.convert.conversion import Part, exit_code, file_checksum, write_parts
from mpibow.convert.labels import set_aside
from mpibow.convert.tables import Asked, Table, columns_of, kept_rows, read_table
from mpibow.data.dataset import Array
from mpibow.data.table import Columns
from mpibow.errors import RecordError
from mpibow.system.streams import as_command


def convert(
    source: Path, output: Path, *, test: Path | None = None, test_fraction: float | None = None, seed: int = 1,
    asked: Asked | None = None, overwrite: bool = False,
) -> Columns:  # fmt: skip
    """Writes output/train, and output/test if there is one, and verifies them. Errors name row and column."""
    asked = asked or Asked()
    arguments.prepare(output, overwrite)
    arguments.refuse_split(test_fraction, test)
    paths = {"train": source} | ({"test": test} if test else {})
    tables: dict[str, Table] = {name: read_table(path) for name, path in paths.items()}
    for name, path in paths.items():
        if not len(next(iter(tables[name].values()))):
            raise RecordError(f"{path}: has no rows")
    if test_fraction is not None:
        tables = _split(tables["train"], test_fraction, seed, source)
        paths = dict.fromkeys(tables, source)
    columns = columns_of(tables, asked, source)
    sources = {path.name: file_checksum(path) for path in paths.values()}
    parts = {}
    for name, table in tables.items():
        rows = kept_rows(table, columns, drop=asked.missing == "drop")
        if dropped := len(next(iter(table.values()))) - len(rows):
            print(f"{paths[name]}: {dropped:,} rows of {name} lack a value and are left out")
        if not rows:
            raise RecordError(f"{paths[name]}: no row of {name} has all values; pass --missing fill")
        samples = _samples(table, columns, rows, paths[name])
        parts[name] = Part(len(rows), samples, sources=sources, contents=columns.contents())
    about = f"{source.name}: {len(columns.inputs)} columns" + (f"; test: {test_fraction}" if test_fraction else "")
    names = columns.label.values if columns.label else ()
    write_parts(output, parts, classes=len(names) or 1, class_names=names, source=about, overwrite=overwrite)
    return columns


def _split(table: Table, share: float, seed: int, source: Path) -> dict[str, Table]:
    count = len(next(iter(table.values())))
    chosen = set_aside(range(count), np.zeros(count, np.int64), share, seed, source)
    return {
        name: {
            column: [cell for cell, take in zip(cells, which, strict=True) if take] for column, cells in table.items()
        }
        for name, which in (("train", ~chosen), ("test", chosen))
    }


def _samples(table: Table, columns: Columns, rows: list[int], path: Path) -> Iterator[tuple[Array, int]]:
    for n in rows:
        cells: Mapping[str, object] = {name: column[n] for name, column in table.items()}
        try:
            row = columns.row(cells)
            label = 0 if columns.label is None else columns.label.stored(cells[columns.label.name])
        except RecordError as error:
            raise RecordError(f"{path}: row {n + 1}: {error}") from None
        yield np.array(row, np.float32).reshape(-1, 1, 1), label


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("table", __doc__)
    arguments.add_source(made, "CSV or Parquet file of the training part, or of all rows")
    made.add_argument("--test", type=Path, metavar="FILE", help="file of the test part")
    arguments.add_output(made, "data/table")
    made.add_argument(
        "--target",
        type=_names,
        default=(),
        metavar="COLUMNS",
        help="column to predict, or several, as a,b (default: the last)",
    )
    made.add_argument(
        "--classes", action="store_true", help="the target's values are classes, even if they are numbers"
    )
    made.add_argument(
        "--categories", type=_names, default=(), metavar="COLUMNS", help="columns of names, even if they are numbers"
    )
    made.add_argument("--leave-out", type=_names, default=(), metavar="COLUMNS", help="columns that are not converted")
    made.add_argument(
        "--missing", choices=["error", "fill", "drop"], default="error",
        help="cells without a value: an error; filled by the column's mean, or a category of their own; or their rows "
        "are left out (default: %(default)s)",
    )  # fmt: skip
    made.add_argument("--no-scale", action="store_true", help="leave numbers as they are")
    made.add_argument("--scale-target", action="store_true", help="scale the numbers to predict as well")
    arguments.add_split(made)
    arguments.add_overwrite(made)
    return made


def main(argv: list[str] | None = None) -> int:
    command = parser()
    options = command.parse_args(argv)
    asked = Asked(
        options.target, options.classes, options.leave_out, options.categories, options.missing, not options.no_scale,
        options.scale_target,
    )  # fmt: skip

    def run() -> None:
        columns = convert(
            options.source, options.output, test=options.test, test_fraction=options.test_fraction, seed=options.seed,
            asked=asked, overwrite=options.overwrite,
        )  # fmt: skip
        print(f"features: {len(columns.numbers)} numbers")
        for category in columns.categories:
            print(f"categories: {category.name} of {len(category.values)}")
        goal = columns.label
        print(
            f"target: {len(goal.values)} classes of {goal.name}"
            if goal
            else f"target: {', '.join(t.name for t in columns.targets)}"
        )

    return exit_code(run)


if __name__ == "__main__":
    as_command(main)
