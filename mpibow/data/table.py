"""A table as records, and as arrays: numbers scaled, categories numbered, as its manifest describes every column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpibow.data.dataset import Array, NamedArrays
from mpibow.data.recordset import RecordSet
from mpibow.errors import RecordError

KIND = "table"
FEATURES, CATEGORIES, TARGET = "features", "categories", "target"
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")  # cells without a value, in any case
MOST = 1 << 24  # float32 has all integers below it
LOT = 1 << 14  # records that are read at once
Cells = Sequence[Any]


@dataclass(frozen=True)
class Number:
    """A column of numbers, stored as (x - mean) / std."""

    name: str
    mean: float = 0.0
    std: float = 1.0

    def stored(self, cell: Any) -> float:
        """The stored number of a cell with a value. Raises RecordError where the cell is no number."""
        value = number_of(cell)
        if value is None or not math.isfinite(value):
            raise RecordError(f"{self.name}: must be a number, got {cell!r}")
        return (value - self.mean) / self.std


@dataclass(frozen=True)
class Category:
    """A column of names, each stored as its place among `values`."""

    name: str
    values: tuple[str, ...]

    def stored(self, cell: Any) -> int:
        """The stored number of a cell with a value. Raises RecordError where the cell is none of `values`."""
        try:
            return self.values.index(text_of(cell))
        except ValueError:
            shown = ", ".join(self.values[:10]) + ", ..." * (len(self.values) > 10)
            raise RecordError(f"{self.name}: must be one of {shown}, got {cell!r}") from None


@dataclass(frozen=True)
class Columns:
    """The columns of a table in the order in which they are stored. One of classes is in `label`, not among `targets`.

    `missing` replaces a cell without a value, by column: a number before scaling, or a name.
    """

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...] = ()
    targets: tuple[Number, ...] = ()
    label: Category | None = None
    missing: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[Number | Category, ...]:
        return (*self.numbers, *self.categories)

    def contents(self) -> dict[str, Any]:
        """The columns as fields for the manifest, and for code that converts other rows alike."""
        return {
            "kind": KIND,
            "numbers": [[each.name, each.mean, each.std] for each in self.numbers],
            "categories": {each.name: list(each.values) for each in self.categories},
            "targets": [[each.name, each.mean, each.std] for each in self.targets],
            "label": None if self.label is None else [self.label.name, list(self.label.values)],
            "missing": dict(self.missing),
        }

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Columns:
        """The inverse of `contents`. Raises RecordError where it is none."""
        try:
            label = known["label"]
            return cls(
                tuple(Number(*each) for each in known["numbers"]),
                tuple(Category(name, tuple(values)) for name, values in known["categories"].items()),
                tuple(Number(*each) for each in known["targets"]),
                None if label is None else Category(label[0], tuple(label[1])),
                dict(known["missing"]),
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise RecordError(f"contents: does not describe a table: {error!r}; convert the data again") from error

    def row(self, cells: Mapping[str, Any], *, targets: bool = True) -> list[float]:
        """The stored values of a row, given as cells by column. Raises RecordError that names the column."""
        columns = (*self.inputs, *self.targets) if targets else self.inputs
        return [each.stored(self._cell(cells, each.name)) for each in columns]

    def encode(self, columns: Mapping[str, Cells]) -> dict[str, Array]:
        """The net's inputs for other rows, given by columns: features and categories. Raises RecordError."""
        if lacking := [each.name for each in self.inputs if each.name not in columns]:
            raise RecordError(f"{lacking[0]}: is missing, the table has {', '.join(map(str, columns))}")
        count = len(next(iter(columns.values()), ()))
        rows = []
        for n in range(count):
            try:
                rows.append(self.row({name: cells[n] for name, cells in columns.items()}, targets=False))
            except RecordError as error:
                raise RecordError(f"row {n + 1}: {error}") from None
        return self.arrays(np.array(rows, np.float32).reshape(count, len(self.inputs)))

    def arrays(self, values: Array) -> dict[str, Array]:
        """Stored values (n, columns) float32 by name: features, categories (int32) and target, as far as there are."""
        first, second = len(self.numbers), len(self.inputs)
        found = {FEATURES: values[:, :first]} if first else {}
        if self.categories:
            found[CATEGORIES] = np.rint(values[:, first:second]).astype(np.int32)
        if values.shape[1] > second:
            target = values[:, second:]
            found[TARGET] = target[:, 0] if len(self.targets) == 1 else target
        return found

    def _cell(self, cells: Mapping[str, Any], name: str) -> Any:
        cell = cells[name]
        if not is_missing(cell):
            return cell
        if name not in self.missing:
            raise RecordError(f"{name}: has no value, got {cell!r}; pass --missing fill or --missing drop")
        return self.missing[name]


def open_table(records: RecordSet) -> NamedArrays:
    """All rows in memory, every checksum checked, as features, categories and target (of classes: int32)."""
    columns = Columns.of(records.manifest.contents)
    values, labels = np.empty((records.count, *records.shape), np.float32), np.empty(records.count, np.int32)
    for first in range(0, records.count, LOT):
        part = slice(first, min(first + LOT, records.count))
        records.read(np.arange(part.start, part.stop), values[part], labels[part])
    arrays = columns.arrays(values.reshape(records.count, -1))
    if columns.label is not None:
        arrays[TARGET] = labels
    return NamedArrays(arrays, name=records.name, contents=records.manifest.contents)


def number_of(cell: Any) -> float | None:
    """A cell as a number, None where it is none."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def text_of(cell: Any) -> str:
    return str(cell).strip()


def is_missing(cell: Any) -> bool:
    if isinstance(cell, float) and math.isnan(cell):
        return True
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING)
