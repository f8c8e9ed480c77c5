"""A cell of a table: whether it has a value, and the number or the name that it is."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any

MISSING = ("NA", "N/A", "NaN", "null", "None", "?")  # beside the empty cell, in any case
SPACE = " "  # as a separator of thousands it stands for any kind of space, as ' for both apostrophes
KINDS = {SPACE: "[ \u00a0\u2007\u2009\u202f]", "'": "['\u2019]"}
EXACT = 2**53  # float64 has all integers up to it
CODE = re.compile(r"[+-]?0\d.*", re.ASCII)  # leading zeros
Cells = Sequence[Any]


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
        whole, point = r"\d+", re.escape(self.point)
        if self.thousands:
            whole = rf"(?:[1-9]\d{{0,2}}(?:{self._groups}\d{{3}})+|\d+)"
        return re.compile(rf"[+-]?(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?", re.ASCII)

    @cached_property
    def _groups(self) -> str:
        return KINDS.get(self.thousands, re.escape(self.thousands))

    @cached_property
    def _missing(self) -> set[str]:
        return {"", *(word.strip().casefold() for word in (MISSING if self.missing is None else self.missing))}

    def is_missing(self, cell: Any) -> bool:
        """Whether a cell has no value."""
        if isinstance(cell, str):
            return cell.strip().casefold() in self._missing
        return cell is None or (isinstance(cell, float) and math.isnan(cell))

    def number(self, cell: Any, percent: bool = False) -> float | None:
        """A cell as a number, None where it is none; with `percent` text ends in %, and 5 % is 0.05."""
        if not isinstance(cell, str):
            return float(cell) if is_number(cell) else None
        text = cell.strip()
        if percent:
            if not text.endswith("%"):
                return None
            text = text[:-1].rstrip()
        return float(self._plain(text)) / (100 if percent else 1) if self._number.fullmatch(text) else None

    def canonical(self, cell: Any) -> str | None:
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


def is_number(cell: Any) -> bool:
    """Whether a cell is a number already, of Python or NumPy."""
    return isinstance(cell, Real | Decimal) and not isinstance(cell, bool)


def text_of(cell: Any) -> str:
    """A cell as the name that it is."""
    return str(cell).strip()
