"""Tables in CSV and Parquet files, by columns; and the kind of each column."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from mpibow.data.table import MOST, Category, Cells, Columns, Number, is_missing, number_of, text_of
from mpibow.errors import RecordError, install

SEPARATORS = (",", ";", "\t", "|")
UNKNOWN = "(missing)"  # the category of cells without a value
Table = Mapping[str, Cells]


def read_table(path: Path) -> dict[str, list[Any]]:
    """Columns by name: a CSV file in UTF-8, whose first line has the names, or a Parquet file. Raises RecordError."""
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return _parquet(path)
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _csv(path, file)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: is not text in UTF-8; convert the file") from error


def _csv(path: Path, file: Any) -> dict[str, list[Any]]:
    first = file.readline()
    separator = max(SEPARATORS, key=first.count)
    names = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
    if not any(names):
        raise RecordError(f"{path}: is empty; its first line must name the columns")
    for name in names:
        if not name or names.count(name) > 1:
            raise RecordError(f"{path}: line 1: every column needs a name of its own, got {name!r}")
    if all(number_of(name) is not None for name in names):
        raise RecordError(f"{path}: line 1: must name the columns, got numbers; add a line of names")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    reader = csv.reader(file, delimiter=separator)
    for row in reader:
        if not row:
            continue
        if len(row) != len(names):
            raise RecordError(f"{path}: line {reader.line_num + 1}: has {len(row)} cells, line 1 names {len(names)}")
        for name, cell in zip(names, row, strict=True):
            columns[name].append(cell)
    return columns


def _parquet(path: Path) -> dict[str, list[Any]]:
    try:
        parquet, errors = import_module("pyarrow.parquet"), import_module("pyarrow").ArrowException
    except ImportError:
        raise RecordError(f"{path}: needs the package pyarrow: {install('table')}") from None
    try:
        return {str(name): cells for name, cells in parquet.read_table(path).to_pydict().items()}
    except errors as error:
        raise RecordError(f"{path}: is no Parquet file that pyarrow reads: {error}") from error


@dataclass(frozen=True)
class Asked:
    """The user's options for columns: targets, of which one of `classes` is named; those left out; those of names."""

    targets: tuple[str, ...] = ()  # () is the last column
    classes: bool = False
    left_out: Collection[str] = ()
    names: Collection[str] = ()
    missing: str = "error"  # or fill, or drop
    scale: bool = True
    scale_target: bool = False


def columns_of(tables: Mapping[str, Table], asked: Asked, source: object) -> Columns:
    """Columns: means and deviations of the training table, categories of all. Raises RecordError naming the column."""
    train = tables["train"]
    targets = asked.targets or (next(reversed([name for name in train if name not in asked.left_out]), ""),)
    for name in (*targets, *asked.left_out, *asked.names):
        if name not in train:
            raise RecordError(f"{source}: has no column {name!r}, it has {', '.join(train)}")
    for part, table in tables.items():
        if set(table) != set(train):
            unlike = sorted(set(table) ^ set(train))
            raise RecordError(f"{part}: {unlike[0]} is a column of one part and not of the other")
    inputs = [name for name in train if name not in (*targets, *asked.left_out)]
    if not inputs:
        raise RecordError(f"{source}: has no column beside the target {', '.join(targets)}")
    whole = {name: [cell for table in tables.values() for cell in table[name]] for name in (*inputs, *targets)}
    is_text = {name: name in asked.names or _named(whole[name]) for name in whole}
    numbers = [_number(name, train[name], asked.scale) for name in inputs if not is_text[name]]
    categories = [_category(name, whole[name], asked.missing) for name in inputs if is_text[name]]
    missing: dict[str, Any] = {}
    if asked.missing == "fill":
        missing = {column.name: _mean(train[column.name]) for column in numbers}
        missing |= {column.name: UNKNOWN for column in categories}
    if not asked.classes and len(targets) > 1 and any(is_text[name] for name in targets):
        raise RecordError(f"{source}: several targets must be numbers, got {', '.join(targets)}")
    if asked.classes or is_text[targets[0]]:
        if len(targets) > 1:
            raise RecordError(f"{source}: one column has the classes, got {', '.join(targets)}")
        label = _category(targets[0], whole[targets[0]], "error")
        return Columns(tuple(numbers), tuple(categories), (), label, missing)
    goals = tuple(_number(name, train[name], asked.scale_target) for name in targets)
    return Columns(tuple(numbers), tuple(categories), goals, None, missing)


def kept_rows(table: Table, columns: Columns, *, drop: bool) -> list[int]:
    """The rows to convert: all, or those without a missing cell."""
    count = len(next(iter(table.values()), ()))
    if not drop:
        return list(range(count))
    goals = [each.name for each in columns.targets] + ([columns.label.name] if columns.label else [])
    names = [*(each.name for each in columns.inputs), *goals]
    return [n for n in range(count) if not any(is_missing(table[name][n]) for name in names)]


def _named(cells: Cells) -> bool:
    """Whether a column is of names: some cell has a value that is no number."""
    return any(not is_missing(cell) and (isinstance(cell, bool) or number_of(cell) is None) for cell in cells)


def _values(cells: Cells) -> np.ndarray[Any, Any]:
    found = [number_of(cell) for cell in cells if not is_missing(cell)]
    return np.array([value for value in found if value is not None and np.isfinite(value)], np.float64)


def _mean(cells: Cells) -> float:
    values = _values(cells)
    return float(values.mean()) if len(values) else 0.0


def _number(name: str, cells: Cells, scale: bool) -> Number:
    values = _values(cells)
    if not scale or not len(values):
        return Number(name)
    spread = float(values.std())
    return Number(name, float(values.mean()), spread if spread > 0 else 1.0)


def _category(name: str, cells: Sequence[Any], missing: str) -> Category:
    values = {text_of(cell) for cell in cells if not is_missing(cell)}
    numbers = {value: number_of(value) for value in values}
    in_order = (number is not None for number in numbers.values())
    ordered = sorted(values, key=lambda value: numbers[value] or 0.0) if all(in_order) else sorted(values)
    found = (*ordered, *([UNKNOWN] if missing == "fill" and any(map(is_missing, cells)) else []))
    if len(found) >= MOST:
        raise RecordError(f"{name}: has {len(found):,} categories, records hold less than {MOST:,}")
    return Category(name, tuple(found))
