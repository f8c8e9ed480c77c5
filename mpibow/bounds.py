"""The bounds that a setting's annotation carries, as in `share: Annotated[float, Above(0), Below(1)]`.

`holds` of a bound checks a value; its str() ends the sentence "must be a number ...".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, NewType

AnyFloat = NewType("AnyFloat", float)  # may be infinite or NaN; a setting of type float is finite


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
    """The whole text matches the pattern; `rule` is the pattern in words."""

    pattern: str
    rule: str

    def holds(self, value: str) -> bool:
        return re.fullmatch(self.pattern, value) is not None

    def __str__(self) -> str:
        return self.rule


@dataclass(frozen=True)
class NotEmpty:
    """A text or a list that is not empty."""

    def holds(self, value: Sequence[object]) -> bool:
        return len(value) > 0

    def __str__(self) -> str:
        return "that is not empty"


@dataclass(frozen=True)
class Rising:
    """A list of strictly increasing numbers."""

    def holds(self, value: Sequence[float]) -> bool:
        return all(before < after for before, after in pairwise(value))

    def __str__(self) -> str:
        return "that rises"


Bound = Above | AtLeast | Below | AtMost | Matches | NotEmpty | Rising
Positive = Annotated[float, Above(0)]
NotNegative = Annotated[float, AtLeast(0)]
Natural = Annotated[int, AtLeast(0)]
Count = Annotated[int, AtLeast(1)]
Text = Annotated[str, NotEmpty()]
