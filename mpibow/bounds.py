"""The bounds that a setting's annotation carries, as in `lr: Annotated[float, Above(0)]`.

A bound says whether it `holds` for a value; its str() ends the sentence "must be a number ...".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NewType

AnyFloat = NewType("AnyFloat", float)  # also an infinite one, or NaN; a setting that is a float is finite


@dataclass(frozen=True)
class Above:
    limit: float

    def holds(self, value: float) -> bool:
        return value > self.limit

    def __str__(self) -> str:
        return f"above {self.limit}"


@dataclass(frozen=True)
class AtLeast:
    limit: float

    def holds(self, value: float) -> bool:
        return value >= self.limit

    def __str__(self) -> str:
        return f"of at least {self.limit}"


@dataclass(frozen=True)
class Below:
    limit: float

    def holds(self, value: float) -> bool:
        return value < self.limit

    def __str__(self) -> str:
        return f"below {self.limit}"


@dataclass(frozen=True)
class AtMost:
    limit: float

    def holds(self, value: float) -> bool:
        return value <= self.limit

    def __str__(self) -> str:
        return f"of at most {self.limit}"


@dataclass(frozen=True)
class Matches:
    """The whole text matches the pattern; `rule` says so in words."""

    pattern: str
    rule: str

    def holds(self, value: str) -> bool:
        return re.fullmatch(self.pattern, value) is not None

    def __str__(self) -> str:
        return self.rule


@dataclass(frozen=True)
class NotEmpty:
    """A text or a list with something in it."""

    def holds(self, value: Sequence[object]) -> bool:
        return len(value) > 0

    def __str__(self) -> str:
        return "that is not empty"


@dataclass(frozen=True)
class Rising:
    """A list whose numbers grow from each to the next."""

    def holds(self, value: Sequence[float]) -> bool:
        return all(before < after for before, after in pairwise(value))

    def __str__(self) -> str:
        return "that rises"


Bound = Above | AtLeast | Below | AtMost | Matches | NotEmpty | Rising
