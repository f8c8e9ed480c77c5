"""The columns of a table as records have them: which are inputs and targets, and how each is converted."""

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from mpibow.data import Array
from mpibow.data.columns import MOST, PLAIN, UNKNOWN, CategoryColumn, Columns, Notation, NumberColumn
from mpibow.errors import RecordError

from .numerals import Column
from .table_files import SourceTable

INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")  # the name that pandas gives


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
    notation: Notation = PLAIN
    percent: bool = False

    def chosen(self, table: SourceTable) -> tuple[list[str], list[str]]:
        """The inputs and the targets. Raises RecordError for a column that does not exist, and for pandas' index."""
        there = list(table.columns)
        kept = [name for name in there if name not in self.left_out]
        targets = list(self.targets) or kept[-1:]
        for name in (*targets, *self.left_out, *self.names):
            if name not in there:
                quote = f"; names with a comma are quoted, as '\"{there[0]}\"'" if any("," in n for n in there) else ""
                raise RecordError(f"{table.path}: has no column {name!r}, it has {', '.join(there)}{quote}")
        for name in kept:
            if INDEX.fullmatch(name):
                raise RecordError(
                    f"{table.heads}: column {1 + there.index(name)} has no name, as pandas' index or after a last "
                    f"separator; pass --leave-out {shlex.quote(name)}, or name the column"
                )
        inputs = [name for name in kept if name not in targets]
        if not inputs:
            one = "; a comma, semicolon, tab or | separates columns" if len(there) == 1 else ""
            raise RecordError(f"{table.path}: has no column beside the target {', '.join(targets)}{one}")
        return inputs, targets


def complete_rows(table: SourceTable, names: Sequence[str], notation: Notation) -> tuple[SourceTable, str]:
    """The rows without a missing cell in these columns; and a note on the others, by column, if there are any."""
    lacking = {name: [n for n, cell in enumerate(table.columns[name]) if notation.is_missing(cell)] for name in names}
    gone = {n for rows in lacking.values() for n in rows}
    if not gone:
        return table, ""
    words = [
        f"{len(rows):,} have no {name}, as {table.columns[name][rows[0]]!r} in {table.unit} {table.rows[rows[0]]}"
        for name, rows in lacking.items()
        if rows
    ]
    kept = [n for n in range(len(table.rows)) if n not in gone]
    if not kept:
        raise RecordError(f"{table.path}: no row has all values: {'; '.join(words)}; pass --missing fill")
    return table.take(kept), f"{table.path}: {len(gone):,} rows are left out: {'; '.join(words)}"


def columns_of(
    files: Sequence[SourceTable], asked: Asked, train: SourceTable | None = None
) -> tuple[Columns, list[str]]:
    """Columns: categories of all files, means and deviations of `train`, which is the first file unless given.

    Also notes on what may not be meant. Raises RecordError naming the column.
    """
    train = train or files[0]
    inputs, targets = asked.chosen(train)
    for table in files:
        if unlike := sorted(set(table.columns) ^ set(train.columns)):
            raise RecordError(f"{table.path}: {unlike[0]} is a column of one part and not of the other")
    columns = {name: Column(name, files, asked.notation, name in targets) for name in (*inputs, *targets)}
    numbers = list[NumberColumn]()
    categories = list[CategoryColumn]()
    notes = list[str]()
    goals = list[NumberColumn]()
    label = None
    fill = dict[str, object]()
    for name, column in columns.items():
        is_target = name in targets
        named = name in asked.names or (asked.classes and is_target)
        reading = None if named else column.reading(asked.percent)
        if reading is not None:
            values = column.values(reading, train)
            if not len(values):
                raise RecordError(
                    f"{train.path}: {name}: has no values to train on; pass --leave-out {shlex.quote(name)}"
                )
            number = _number(name, values, reading.percent, asked.scale_target if is_target else asked.scale)
            (goals if is_target else numbers).append(number)
            fill[name] = float(values.mean())
        elif not is_target:
            categories.append(_category(column, asked.missing == "fill"))
            fill[name] = UNKNOWN
        elif len(targets) > 1:
            what = "one column has the classes" if asked.classes else "several targets must be numbers"
            raise RecordError(f"{train.path}: {what}, got {', '.join(targets)}")
        else:
            label = _category(column, fill=False)
            column.refuse_missing_names()
        notes += column.notes(reading, named)
    fill = {name: fill[name] for name in inputs} if asked.missing == "fill" else {}
    return Columns(tuple(numbers), tuple(categories), tuple(goals), label, fill, asked.notation), notes


def _number(name: str, values: Array, percent: bool, scale: bool) -> NumberColumn:
    if not scale:
        return NumberColumn(name, percent=percent)
    spread = float(values.std()) if np.ptp(values) else 1.0
    return NumberColumn(name, float(values.mean()), spread, percent)


def _category(column: Column, fill: bool) -> CategoryColumn:
    names = column.names() + [UNKNOWN] * (fill and column.has_missing)
    if len(names) >= MOST:
        raise RecordError(f"{column.name}: has {len(names):,} categories, records hold less than {MOST:,}")
    return CategoryColumn(column.name, tuple(names))
