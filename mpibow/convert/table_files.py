"""CSV and Parquet files as columns of cells, each row with its place in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from mpibow.convert.delimited import check_widths, rows_of
from mpibow.data.aside import refused
from mpibow.data.cells import PLAIN, Cells
from mpibow.errors import RecordError, install

PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class SourceTable:
    """Cells by the names of columns, and the place of each row in its file: `unit` and number."""

    path: Path
    heads: str  # where the names of columns are
    columns: Mapping[str, Cells]
    rows: Sequence[int]
    unit: str = "line"

    def where(self, row: int) -> str:
        return f"{self.path}: {self.unit} {self.rows[row]}"

    def take(self, rows: Sequence[int]) -> SourceTable:
        columns = {name: [cells[n] for n in rows] for name, cells in self.columns.items()}
        return replace(self, columns=columns, rows=[self.rows[n] for n in rows])


def read_table(path: Path) -> SourceTable:
    """A CSV file whose first row names the columns, or a Parquet file. Raises RecordError, also where it has no rows.

    Spaces and line ends in a name become single spaces. A column without a name is called as pandas does, Unnamed: 0.
    """
    table = _parquet(path) if path.suffix.lower() in PARQUET else _csv(path)
    if not table.rows:
        raise RecordError(f"{path}: has no rows")
    return table


def _csv(path: Path) -> SourceTable:
    rows = rows_of(path)
    if not rows:
        raise RecordError(f"{path}: is empty; its first line must name the columns")
    (line, heads), *others = rows
    names = [" ".join(name.split()) or f"Unnamed: {place}" for place, name in enumerate(heads)]
    for name in names:
        if names.count(name) > 1:
            raise RecordError(f"{path}: line {line}: every column needs a name of its own, got {name!r} twice")
    check_widths(path, rows)
    columns = dict(zip(names, zip(*(cells for _, cells in others), strict=True), strict=True)) if others else {}
    if any(_fraction(name) for name in names) or all(
        PLAIN.number(name) is not None or name in columns.get(name, ()) for name in names
    ):
        raise RecordError(f"{path}: line {line}: must name the columns, got values; add a line of names")
    return SourceTable(path, f"{path}: line {line}", columns, [line for line, _ in others])


def _fraction(name: str) -> bool:
    return not float(PLAIN.number(name) or 0).is_integer()


def _parquet(path: Path) -> SourceTable:
    try:
        parquet, errors = import_module("pyarrow.parquet"), import_module("pyarrow").ArrowException
    except ImportError:
        raise RecordError(f"{path}: needs the package pyarrow: {install('table')}") from None
    try:
        with refused(path, "read"):
            table = parquet.read_table(path)
        if len(set(table.column_names)) < table.num_columns:
            raise RecordError(f"{path}: every column needs a name of its own, got {', '.join(table.column_names)}")
        columns = {str(name): cells for name, cells in table.to_pydict().items()}
    except errors as error:
        raise RecordError(f"{path}: is not a Parquet file that pyarrow reads: {error}") from error
    return SourceTable(path, str(path), columns, range(1, table.num_rows + 1), "row")
