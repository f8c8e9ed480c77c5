"""Whether the cells of a column are numbers or names; what could be either is refused, with the option that decides."""

import re
import shlex
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np

from mpibow.data import Array
from mpibow.data.columns import CODE, EXACT, LARGEST, SPACE, Notation, is_number, text_of
from mpibow.errors import RecordError

from .table_files import SourceTable

T = TypeVar("T")
CURRENCY = re.compile(r"\s*[$\u00a2-\u00a5\u20a0-\u20c0]\s*")
LIKELY = re.compile(r"[\s\d.,'\u2019_+\-%()eE]*", re.ASCII)
PLAINER = str.maketrans("\u2212\u2013\u066a\u066b\u066c", "--%.,")
UNIT = re.compile(r"([A-Z]{3}\s+)?(.*\d)\s*(\D*)", re.DOTALL)
STYLES = [(".", ""), (",", ""), (".", ","), (",", "."), (".", SPACE), (",", SPACE), (".", "'"), (",", "'"), (".", "_")]
NOTED = 20  # rows, from which a column may be an index or free text
EUROPEAN = Notation(",", ".")


@dataclass(frozen=True)
class NumberReading:
    """A way to read cells as numbers; `rewritten` without currency, other scripts' digits and signs, and brackets."""

    notation: Notation
    percent: bool = False
    rewritten: bool = False

    def __call__(self, cell: object) -> float | None:
        return self.notation.number(_plainer(cell) if self.rewritten else cell, self.percent)

    def beside(self, asked: "NumberReading") -> str:
        """The options that choose it instead."""
        words = []
        thousands = self.notation.thousands
        if self.notation.point != asked.notation.point:
            words.append(f"--decimal {self.notation.point}")
        if thousands != asked.notation.thousands:
            words.append("--thousands " + (thousands if thousands in {*",._"} else f'"{thousands}"'))
        return " ".join([*words, *["--percent"] * (self.percent and not asked.percent)])


class Column:
    """The cells of one column in all files, equal ones once."""

    def __init__(self, name: str, tables: Sequence[SourceTable], notation: Notation, target: bool):
        self.name = name
        self._tables = tables
        self._notation = notation
        self._target = target
        self._first = dict[tuple[type, object], int]()  # row by cell; 1, 1.0 and True differ
        for row, cell in enumerate(chain.from_iterable(table.columns[name] for table in tables)):
            if isinstance(cell, list | dict | bytes):
                raise RecordError(
                    f"{self._where(row)}: {name}: is a {type(cell).__name__}, not a number or name; "
                    f"pass {self._leave_out}"
                )
            self._first.setdefault((type(cell), cell), row)
        self._cells = [cell for _, cell in self._first if not notation.is_missing(cell)]
        self.has_missing = len(self._cells) < len(self._first)

    def reading(self, percent: bool) -> NumberReading | None:
        """How the cells are numbers, None where all are names. Raises RecordError where it is not plain which."""
        asked = NumberReading(self._notation, percent)
        for way in (NumberReading(self._notation), asked):
            if self._fits(way):
                if large := [cell for cell in self._cells if not abs(way(cell) or 0) <= LARGEST]:
                    raise self._error(large[0], "is beyond the numbers of records, float32")
                self._refuse_thousands(way)
                return way
        ways = [
            NumberReading(Notation(*style), percentage, rewritten)
            for rewritten in (False, True)
            for style in [(self._notation.point, self._notation.thousands), *STYLES]
            for percentage in (False, True)
        ]
        if any(_like_number(cell, ways) for cell in self._cells):
            self._refuse(asked, ways)
        units = [match for cell in self._cells if (match := UNIT.fullmatch(text_of(cell)))]
        if len(units) == len(self._cells) > 1 == len({(match[1], match[3]) for match in units}) and all(
            _like_number(match[2], ways) for match in units
        ):
            raise self._error(self._cells[0], f"is not a number; if it is one, write {units[0][2]} in the file")
        return None

    def _refuse_thousands(self, way: NumberReading) -> None:
        """Raises RecordError for 500 and 1.250, unless an option says what the point is."""
        cells = [
            cell for cell in self._cells if self._notation.decimal is None and isinstance(cell, str) and "." in cell
        ]
        if 0 < len(cells) < len(self._cells) and self._fits(NumberReading(EUROPEAN, way.percent)):
            raise self._error(
                cells[0],
                f"may have a decimal point or thousands; pass --decimal . if it is {way(cells[0]):.12g}, "
                f"--decimal , --thousands . if it is {EUROPEAN.number(cells[0], way.percent):.12g}",
            )

    def _refuse(self, asked: NumberReading, ways: Sequence[NumberReading]) -> None:
        if fitting := [way for way in ways if self._fits(way)]:
            cell = next(cell for cell in self._cells if asked(cell) is None)
            if fitting[0].rewritten:
                raise self._error(cell, f"is not a number; if it is one, write {fitting[0](cell):.12g} in the file")
            by_values = {tuple(map(way, self._cells)): way for way in reversed(fitting) if not way.rewritten}
            choices = [f"{way.beside(asked)} if it is {way(cell):.12g}" for way in reversed(by_values.values())]
            raise self._error(cell, f"is not a number in this notation; pass {', '.join(choices)}")
        best = max(ways, key=lambda way: sum(way(cell) is not None for cell in self._cells))
        number = next(cell for cell in self._cells if best(cell) is not None)
        cell = next(cell for cell in self._cells if best(cell) is None)
        options = " with " * bool(best.beside(asked)) + best.beside(asked)
        missing = f"pass --missing-values={shlex.quote(text_of(cell))} if it is not a value"
        like = f"is not a number as {number!r} is{options} ({self._where(self._first[type(number), number])})"
        raise self._error(cell, f"{like}; correct it, {missing}")

    def values(self, reading: NumberReading, table: SourceTable) -> Array:
        """The numbers of the table's cells that have a value, float64."""
        cells = table.columns[self.name]
        return np.array([reading(cell) for cell in cells if not self._notation.is_missing(cell)], np.float64)

    def names(self) -> list[str]:
        """The names that occur, sorted; numbers by value, each once. Raises RecordError where 01 and 1 both occur."""
        if spellings := self._spellings():
            return sorted(spellings, key=lambda name: (float(name), name))
        if self._fits(NumberReading(self._notation)):
            codes = dict[float | None, object]()
            for cell in self._cells:
                other = codes.setdefault(self._notation.number(cell), cell)
                if text_of(other) != text_of(cell):
                    place = self._where(self._first[type(other), other])
                    raise RecordError(f"{self._title(cell)} and {other!r} ({place}) are one number; write both alike")
        return sorted({text_of(cell) for cell in self._cells})

    def refuse_missing_names(self) -> None:
        """Raises RecordError where the default list of missing values may have the name of a class, such as None."""
        lacking = [
            cell
            for _, cell in self._first
            if isinstance(cell, str) and cell.strip() and self._notation.is_missing(cell)
        ]
        if lacking and self._notation.missing is None and not self._spellings():
            word = shlex.quote(text_of(lacking[0]))
            raise RecordError(
                f"{self._title(lacking[0])} may be a class or a missing value; pass --missing-values '' if it is a "
                f"class, --missing-values {word} if it is not a value"
            )

    def notes(self, reading: NumberReading | None, chosen: bool) -> list[str]:
        """What may not be meant where `reading` reads the cells; `chosen`: an option says that they are names."""
        count = sum(len(table.rows) for table in self._tables)
        leave = f"pass {self._leave_out}"
        if reading is None:
            several = [spellings for spellings in self._spellings().values() if len(spellings) > 1]
            notes = [f"{self.name}: {' and '.join(map(repr, spellings))} are one name" for spellings in several[:1]]
            alike = dict[str, str]()
            for name in self.names():
                if (other := alike.setdefault(name.casefold(), name)) != name:
                    notes.append(f"{self.name}: {other!r} and {name!r} are two names")
                    break
            if count >= NOTED and 2 * len(self._cells) > count and not chosen:
                notes.append(
                    f"{self.name}: has {len(self._cells):,} names in {count:,} rows; {leave} if it is free text"
                )
            return notes
        notes = []
        if code := next((cell for cell in self._cells if _is_code(cell, reading)), None):
            notes.append(
                f"{self._title(code)} is read as the number {reading(code):.17g}; {self._named} if it is a code"
            )
        if (
            reading.notation.decimal is None
            and self._fits(NumberReading(EUROPEAN, reading.percent))
            and all(isinstance(cell, str) and "." in cell for cell in self._cells)
        ):
            title = self._title(self._cells[0])
            notes.append(f"{title} has a decimal point, as all; pass --decimal , --thousands . if it means thousands")
        cells = self._tables[0].columns[self.name]
        rows = self._tables[0].rows
        first = (reading(cells[0]) or 0) - rows[0]
        counts = (reading(cell) == first + row for cell, row in zip(cells, rows, strict=True))
        if len(rows) >= NOTED and not self._target and all(counts):
            notes.append(f"{self.name}: counts the rows; {leave} if it is an index")
        return notes

    def _spellings(self) -> dict[str, list[str]]:
        """The texts of each number by its one spelling, where all cells are numbers."""
        spellings = dict[str, list[str]]()
        for cell in self._cells:
            if (name := self._notation.canonical(cell)) is None:
                return {}
            spellings.setdefault(name, []).append(text_of(cell))
        return spellings

    def _fits(self, way: NumberReading) -> bool:
        return all(way(cell) is not None for cell in self._cells)

    @property
    def _named(self) -> str:
        return "pass --classes" if self._target else f"pass --categories {shlex.quote(self.name)}"

    @property
    def _leave_out(self) -> str:
        return f"--leave-out {shlex.quote(self.name)}"

    def _error(self, cell: object, what: str) -> RecordError:
        return RecordError(f"{self._title(cell)} {what}; if these are names, {self._named} or {self._leave_out}")

    def _title(self, cell: object) -> str:
        return f"{self._where(self._first[type(cell), cell])}: {self.name}: {cell!r}"

    def _where(self, row: int) -> str:
        for table in self._tables:
            if row < len(table.rows):
                break
            row -= len(table.rows)
        return table.where(row)


def _plainer(cell: T) -> T | str:
    if not isinstance(cell, str):
        return cell
    text = CURRENCY.sub("", unicodedata.normalize("NFKC", cell.translate(PLAINER)).strip())
    text = re.sub(r"\((.*)\)", r"-\1", text)
    return text if text.isascii() else "".join(str(unicodedata.decimal(letter, letter)) for letter in text)


def _like_number(cell: object, ways: Sequence[NumberReading]) -> bool:
    if not isinstance(cell, str):
        return is_number(cell)
    return LIKELY.fullmatch(_plainer(cell)) is not None and any(way(cell) is not None for way in ways)


def _is_code(cell: object, reading: NumberReading) -> bool:
    """Whether a number has leading zeros, or more digits than float64 has."""
    text = text_of(cell)
    return CODE.fullmatch(text) is not None or (text.lstrip("+-").isdigit() and abs(reading(cell) or 0) >= EXACT)
