"""The bounds that a setting's annotation carries, as in `share: Annotated[float, Above(0), Below(1)]`.

`holds` of a bound checks a value; its str() ends the sentence "must be a number ...".
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, starmap
from operator import ge, gt, le, lt
from typing import Annotated, Any, NewType

AnyFloat = NewType("AnyFloat", float)  # may be infinite or NaN; a setting of type float is finite


@dataclass(frozen=True)
class Bound:
    holds: Callable[[Any], bool]
    rule: str

    def __str__(self) -> str:
        return self.rule


def _limit(compare: Callable[[float, float], bool], words: str, limit: float) -> Bound:
    return Bound(lambda value: compare(value, limit), f"{words} {limit}")


Above = partial(_limit, gt, "above")
AtLeast = partial(_limit, ge, "of at least")
Below = partial(_limit, lt, "below")
AtMost = partial(_limit, le, "of at most")
NotEmpty = partial(Bound, bool, "that is not empty")  # a text or a list
Rising = partial(Bound, lambda values: all(starmap(lt, pairwise(values))), "that rises")


def Matches(pattern: str, rule: str) -> Bound:
    """The whole text matches the pattern; `rule` is the pattern in words."""
    return Bound(lambda text: re.fullmatch(pattern, text) is not None, rule)


Positive = Annotated[float, Above(0)]
NotNegative = Annotated[float, AtLeast(0)]
Natural = Annotated[int, AtLeast(0)]
Count = Annotated[int, AtLeast(1)]
Text = Annotated[str, NotEmpty()]
