"""The bounds that a setting's annotation carries, as in `share: Annotated[float, Above(0), Below(1)]`.

`holds` of a bound checks a value; its str() ends the sentence "must be a number ...".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import ge, gt, le, lt
from typing import Annotated, NewType

AnyFloat = NewType("AnyFloat", float)  # may be infinite or NaN; a setting of type float is finite


@dataclass(frozen=True)
class Limit:
    """A number that a value must be above, below or at, compared by `compare`."""

    compare: Callable[[float, float], bool]
    words: str
    limit: float

    def holds(self, value: float) -> bool:
        return self.compare(value, self.limit)

    def __str__(self) -> str:
        return f"{self.words} {self.limit}"


Above = partial(Limit, gt, "above")
AtLeast = partial(Limit, ge, "of at least")
Below = partial(Limit, lt, "below")
AtMost = partial(Limit, le, "of at most")


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


Bound = Limit | Matches | NotEmpty | Rising
Positive = Annotated[float, Above(0)]
NotNegative = Annotated[float, AtLeast(0)]
Natural = Annotated[int, AtLeast(0)]
Count = Annotated[int, AtLeast(1)]
Text = Annotated[str, NotEmpty()]
