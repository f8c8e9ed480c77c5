"""A table as records, and as arrays: cells read as numbers or names, columns as its manifest describes them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import starmap
from numbers import Real
from typing import SupportsFloat, TypeGuard

import numpy as np

from mpibow.errors import RecordError
from mpibow.system import JsonObject
from mpibow.system.command import some

from .dataset import Array, NamedArrays
from .readers import Resident
from .recordset import RecordSet

MISSING = ("NA", "N/A", "NaN", "null", "None", "?")  # beside the empty cell, in any case
SPACE = " "  # as a separator of thousands it stands for any kind of space, as ' for both apostrophes
KINDS = {SPACE: "[ \u00a0\u2007\u2009\u202f]", "'": "['\u2019]"}
EXACT = 2**53  # float64 has all integers up to it
CODE = re.compile(r"[+-]?0\d.*", re.ASCII)  # leading zeros
Cells = Sequence[object]


@dataclass(frozen=True)
class Notation:
    """How a table writes numbers and missing values. Cells that are numbers already, as in Parquet, stay as they are.

    A number has ASCII digits, a sign, a fraction and an exponent at most: no underscores, no hexadecimals, no infinity.
    Thousands are in groups of three. `decimal` is a point where it is None: unless numbers may have thousands instead.
    `missing` replaces MISSING; an empty cell is missing in any case.
    """

    decimal: str | None = None
    thousands: str = ""
    missing: Sequence[str] | None = None

    @property
    def point(self) -> str:
        return self.decimal or "."

    @cached_property
    def _number(self) -> re.Pattern[str]:
        whole = r"\d+"
        point = re.escape(self.point)
        if self.thousands:
            whole = rf"(?:[1-9]\d{{0,2}}(?:{self._groups}\d{{3}})+|\d+)"
        return re.compile(rf"[+-]?(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?", re.ASCII)

    @cached_property
    def _groups(self) -> str:
        return KINDS.get(self.thousands, re.escape(self.thousands))

    @cached_property
    def _missing(self) -> set[str]:
        return {"", *map(self._word, MISSING if self.missing is None else self.missing)}

    def _word(self, cell: object) -> str:
        number = self.canonical(cell) if self.missing else None  # none of MISSING is one
        return (number or text_of(cell)).casefold()

    def is_missing(self, cell: object) -> bool:
        """Whether a cell has no value."""
        return cell is None or (isinstance(cell, float) and math.isnan(cell)) or self._word(cell) in self._missing

    def number(self, cell: object, percent: bool = False) -> float | None:
        """A cell as a number, None where it is none; with `percent` text ends in %, and 5 % is 0.05."""
        if not isinstance(cell, str):
            return float(cell) if is_number(cell) else None
        text = cell.strip()
        if percent:
            if not text.endswith("%"):
                return None
            text = text[:-1].rstrip()
        return float(self._plain(text)) / (100 if percent else 1) if self._number.fullmatch(text) else None

    def canonical(self, cell: object) -> str | None:
        """The one spelling of a number as a name: 1 for 1.0 and +1. None for other names, and for codes such as 007."""
        value = self.number(cell)
        if value is None or not math.isfinite(value) or (isinstance(cell, str) and CODE.fullmatch(cell.strip())):
            return None
        if value.is_integer() and abs(value) < EXACT:
            return str(int(value))
        digits = self._plain(text_of(cell)).removeprefix("+")
        return digits if digits.removeprefix("-").isdigit() else repr(value)

    def _plain(self, text: str) -> str:
        if self.thousands:
            text = re.sub(self._groups, "", text)
        return text.replace(self.decimal, ".") if self.decimal else text


PLAIN = Notation()


def is_number(cell: object) -> TypeGuard[SupportsFloat]:
    """Whether a cell is a number already, of Python or NumPy."""
    return isinstance(cell, Real | Decimal) and not isinstance(cell, bool)


def text_of(cell: object) -> str:
    """A cell as the name that it is."""
    return str(cell).strip()


FEATURES = "features"
CATEGORIES = "categories"
TARGET = "target"
UNKNOWN = "(missing)"  # the category of cells without a value
MOST = 1 << 24  # float32 has all integers below it
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, stored as (x - mean) / std; with `percent` 5 % is 0.05."""

    name: str
    mean: float = 0.0
    std: float = 1.0
    percent: bool = False

    def stored(self, cell: object, notation: Notation) -> float:
        """The stored number of a cell with a value. Raises RecordError where the cell is no number of float32."""
        value = notation.number(cell, self.percent)
        if value is None:
            raise RecordError(f"{self.name}: must be a {'percentage' if self.percent else 'number'}, got {cell!r}")
        scaled = (value - self.mean) / self.std
        if not (abs(value) <= LARGEST and abs(scaled) <= LARGEST):
            raise RecordError(f"{self.name}: must be a finite number of float32, got {cell!r}")
        return scaled


@dataclass(frozen=True)
class CategoryColumn:
    """A column of names, each stored as its place among `values`. Numbers among numbers are compared as such."""

    name: str
    values: tuple[str, ...]

    def stored(self, cell: object, notation: Notation) -> int:
        """The stored number of a cell with a value. Raises RecordError where the cell is none of `values`."""
        text = (notation.canonical(cell) if self._of_numbers else None) or text_of(cell)
        if text not in self._places:
            raise RecordError(f"{self.name}: must be one of {some(self.values, 10)}, got {cell!r}")
        return self._places[text]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {value: place for place, value in enumerate(self.values)}

    @cached_property
    def _of_numbers(self) -> bool:
        return all(PLAIN.canonical(value) == value for value in self.values if value != UNKNOWN)


@dataclass(frozen=True)
class Columns:
    """The columns of a table in the order in which they are stored. One of classes is in `label`, not among `targets`.

    `fill` replaces a cell without a value, by column: a number before scaling, or a name.
    """

    numbers: tuple[NumberColumn, ...]
    categories: tuple[CategoryColumn, ...] = ()
    targets: tuple[NumberColumn, ...] = ()
    label: CategoryColumn | None = None
    fill: Mapping[str, object] = field(default_factory=dict)
    notation: Notation = PLAIN

    @property
    def inputs(self) -> tuple[NumberColumn | CategoryColumn, ...]:
        return (*self.numbers, *self.categories)

    def contents(self) -> dict[str, object]:
        """The columns as fields for the manifest, and for code that converts other rows alike."""
        return {
            "kind": "table",
            "numbers": [[*asdict(each).values()] for each in self.numbers],
            "categories": {each.name: list(each.values) for each in self.categories},
            "targets": [[*asdict(each).values()] for each in self.targets],
            "label": None if self.label is None else [self.label.name, list(self.label.values)],
            "fill": dict(self.fill),
            "notation": asdict(self.notation),
        }

    @classmethod
    def of(cls, known: JsonObject) -> "Columns":
        """The inverse of `contents`. Raises RecordError where it is none."""
        try:
            label = known["label"]
            return cls(
                tuple(starmap(NumberColumn, known["numbers"])),
                tuple(CategoryColumn(name, tuple(values)) for name, values in known["categories"].items()),
                tuple(starmap(NumberColumn, known["targets"])),
                None if label is None else CategoryColumn(label[0], tuple(label[1])),
                dict(known["fill"]),
                Notation(**known["notation"]),
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise RecordError(f"contents: does not describe a table: {error!r}; convert the data again") from error

    def row(self, cells: Mapping[str, object], *, targets: bool = True) -> list[float]:
        """The stored values of a row, given as cells by column. Raises RecordError that names the column."""
        columns = (*self.inputs, *self.targets) if targets else self.inputs
        return [each.stored(self._cell(cells, each.name), self.notation) for each in columns]

    def class_of(self, cells: Mapping[str, object]) -> int:
        """The class of a row, 0 where there are none. Raises RecordError that names the column."""
        return 0 if self.label is None else self.label.stored(self._cell(cells, self.label.name), self.notation)

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
        first = len(self.numbers)
        second = len(self.inputs)
        found = {FEATURES: values[:, :first]} if first else {}
        if self.categories:
            found[CATEGORIES] = np.rint(values[:, first:second]).astype(np.int32)
        if values.shape[1] > second:
            target = values[:, second:]
            found[TARGET] = target[:, 0] if len(self.targets) == 1 else target
        return found

    def _cell(self, cells: Mapping[str, object], name: str) -> object:
        cell = cells[name]
        if not self.notation.is_missing(cell):
            return cell
        if name not in self.fill:
            fills = "--missing fill or " if any(name == each.name for each in self.inputs) else ""
            word = f"; if {cell!r} is a value, pass --missing-values '' to convert" if text_of(cell) else ""
            raise RecordError(f"{name}: has no value, got {cell!r}; convert with {fills}--missing drop{word}")
        return self.fill[name]


def open_table(records: RecordSet) -> NamedArrays:
    """All rows in memory, every checksum checked, as features, categories and target (of classes: int32)."""
    columns = Columns.of(records.manifest.contents)
    whole = Resident(records, 1)
    arrays = columns.arrays(whole.images.astype(np.float32, copy=False).reshape(records.count, -1))
    if columns.label is not None:
        arrays[TARGET] = whole.labels
    return NamedArrays(arrays, name=records.name, contents=records.manifest.contents)
