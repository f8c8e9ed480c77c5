"""Writes a table as records: mpibow convert table --source houses.csv --target price --output data/houses

--source is a CSV file in UTF-8, also .csv.gz, whose first line names the columns, or a Parquet file. A column of
numbers is scaled by the mean and standard deviation of the training rows; in any other column the names that occur are
numbered. The target is --target, or the last column: numbers to predict, or classes if it has names or --classes is
given. Numbers are written as 1234.5 or 1e5; --decimal, --thousands and --percent read others. A column that has numbers
and names, or numbers in another notation, is refused. The manifest keeps how every column was converted.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mpibow.convert import arguments
from mpibow.convert.conversion import Part, file_checksum, write_parts
from mpibow.convert.labels import set_aside
from mpibow.convert.table_columns import Asked, columns_of, complete_rows
from mpibow.convert.table_files import SourceTable, read_table
from mpibow.data import Array
from mpibow.data.columns import MISSING, Columns, Notation
from mpibow.errors import RecordError
from mpibow.system.streams import as_command


def convert(
    source: Path,
    output: Path,
    *,
    test: Path | None = None,
    test_fraction: float | None = None,
    seed: int = 1,
    asked: Asked | None = None,
    overwrite: bool = False,
) -> Columns:
    """Writes output/train, and output/test if there is one, and verifies them. Errors name line and column."""
    asked = asked or Asked()
    arguments.prepare(output, overwrite)
    arguments.refuse_split(test_fraction, test)
    if test is not None and test.resolve() == source.resolve():
        raise RecordError(f"{test}: is both to train and to test; give another file, or --test-fraction 0.1")
    files = [read_table(path) for path in (source, test) if path]
    sources = {table.path.name: file_checksum(table.path) for table in files}
    if asked.missing == "drop":
        columns_of(files, asked)  # refuses what rows that are left out would hide, such as a class named None
        files = [_complete(table, asked) for table in files]
    tables = dict(zip(("train", "test"), files, strict=False))
    if test_fraction is not None:
        tables = _split(files[0], columns_of(files, asked)[0], test_fraction, seed)
    columns, notes = columns_of(files, asked, tables["train"])
    for note in notes:
        print(f"note: {note}")
    parts = {
        name: Part(len(table.rows), _samples(table, columns), sources=sources, contents=columns.contents())
        for name, table in tables.items()
    }
    about = f"{source.name}: {len(columns.inputs)} columns" + (f"; test: {test_fraction}" if test_fraction else "")
    classes = columns.label.values if columns.label else ()
    write_parts(output, parts, classes=len(classes) or 1, class_names=classes, source=about, overwrite=overwrite)
    return columns


def _split(table: SourceTable, columns: Columns, share: float, seed: int) -> dict[str, SourceTable]:
    label, labels = columns.label, None
    if label is not None:
        labels = np.array([label.stored(cell, columns.notation) for cell in table.columns[label.name]])
    places = set_aside(range(len(table.rows)), labels, share, seed, table.path)
    return {name: table.take(chosen.tolist()) for name, chosen in places.items()}


def _complete(table: SourceTable, asked: Asked) -> SourceTable:
    table, note = complete_rows(table, [name for names in asked.chosen(table) for name in names], asked.notation)
    if note:
        print(note)
    return table


def _samples(table: SourceTable, columns: Columns) -> Iterator[tuple[Array, int]]:
    for n in range(len(table.rows)):
        cells = {name: column[n] for name, column in table.columns.items()}
        try:
            row, label = columns.row(cells), columns.class_of(cells)
        except RecordError as error:
            raise RecordError(f"{table.where(n)}: {error}") from None
        yield np.array(row, np.float32).reshape(-1, 1, 1), label


def _names(text: str) -> tuple[str, ...]:
    """Names by the rules of CSV: those with a comma are quoted."""
    names = next(csv.reader([text], skipinitialspace=True), [])
    return tuple(filter(None, (" ".join(name.split()) for name in names)))


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("table", __doc__)
    arguments.add_source(made, "CSV or Parquet file of the training part, or of all rows")
    made.add_argument("--test", type=Path, metavar="FILE", help="file of the test part")
    arguments.add_output(made, "data/table")
    made.add_argument(
        "--target",
        dest="targets",
        type=_names,
        default=(),
        metavar="COLUMNS",
        help="column to predict, or several, as a,b (default: the last)",
    )
    made.add_argument(
        "--classes", action="store_true", help="the target's values are classes, even if they are numbers"
    )
    made.add_argument(
        "--categories",
        dest="names",
        type=_names,
        default=(),
        metavar="COLUMNS",
        help="columns of names, even if they are numbers",
    )
    made.add_argument(
        "--leave-out",
        dest="left_out",
        type=_names,
        default=(),
        metavar="COLUMNS",
        help="columns that are not converted",
    )
    made.add_argument(
        "--missing",
        choices=["error", "fill", "drop"],
        default="error",
        help="cells without a value: an error; filled by the column's mean, or a category of their own; or their rows "
        "are left out (default: %(default)s)",
    )
    made.add_argument(
        "--missing-values",
        type=_names,
        metavar="WORDS",
        help="cells that have no value, beside empty ones, in any case; '' for none (default: "
        f"{','.join(MISSING)}; a column of classes may have none of these)",
    )
    made.add_argument(
        "--decimal",
        choices=[".", ","],
        metavar="MARK",
        help="decimal point of numbers, . or , (default: .)",
    )
    made.add_argument(
        "--thousands",
        choices=["", ",", ".", " ", "'", "_"],
        default="",
        metavar="MARK",
        help="separator of thousands: , . ' _ or a space, which is any kind of space (default: none)",
    )
    made.add_argument("--percent", action="store_true", help="read columns of percentages as numbers: 5%% is 0.05")
    made.add_argument("--no-scale", dest="scale", action="store_false", help="leave numbers as they are")
    made.add_argument("--scale-target", action="store_true", help="scale the numbers to predict as well")
    arguments.add_shared(made, "test-fraction", "seed", "overwrite")
    return made


def _fault(options: argparse.Namespace) -> str | None:
    point = options.decimal or "."
    other = "," if point == "." else "."
    same = point == options.thousands
    return f"--thousands: is the decimal point, too; pass --decimal {other}" if same else None


def run(
    decimal: str | None,
    thousands: str,
    missing_values: tuple[str, ...] | None,
    source: Path,
    output: Path,
    test: Path | None,
    test_fraction: float | None,
    seed: int,
    overwrite: bool,
    **asked: Any,
) -> None:
    wanted = Asked(**asked, notation=Notation(decimal, thousands, missing_values))
    columns = convert(
        source, output, test=test, test_fraction=test_fraction, seed=seed, asked=wanted, overwrite=overwrite
    )
    print(f"features: {len(columns.numbers)} numbers")
    for category in columns.categories:
        print(f"categories: {category.name} of {len(category.values)}")
    goal = columns.label
    names = f"{len(goal.values)} classes of {goal.name}" if goal else ", ".join(each.name for each in columns.targets)
    print(f"target: {names}")


main = arguments.command(parser, run, _fault)

if __name__ == "__main__":
    as_command(main)
