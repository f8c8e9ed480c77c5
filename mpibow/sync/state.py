"""The state of a rule, as a checkpoint has it: its arrays and numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from mpibow.bounds import AtLeast, Natural
from mpibow.graph import Array

from .gain import Averages
from .outbox import TAIL
from .rule_formulas import Form


@dataclass(frozen=True)
class Stored:
    """An array of a rule's state, as a checkpoint has it: once for all ranks, which have the same, or each rank's own.

    `form` is "weights" (size,), "steps" (size,), which are 0 of frozen weights, or "sent" (size + TAIL,), of the
    weights' dtype, stored in the canonical layout so that kernels with another layout may go on from them; or
    "numbers", any number of float64. `beside` names an array that is there whenever this one is.
    """

    ranks: Literal["all", "each"]
    form: Form | Literal["sent", "numbers"]
    beside: str = ""

    def wider(self, array: Array, centre: Array) -> Array:
        """Such an array of trained weights with those of the whole `centre` behind them; 0 of what is sent."""
        end = TAIL * (self.form == "sent")
        more = centre.size + end - array.size
        if self.form == "numbers" or more <= 0:
            return array
        if self.form == "weights":
            return np.concatenate([array, centre[array.size :]])
        return np.concatenate([array[: array.size - end], np.zeros(more, array.dtype), array[array.size - end :]])

    def narrower(self, array: Array, size: int) -> Array:
        """The inverse of `wider`: the array of the first `size` weights."""
        if self.form == "numbers":
            return array
        return np.concatenate([array[:size], array[-TAIL:]]) if self.form == "sent" else array[:size]


UNSENT: Mapping[str, Stored] = {  # of Outbox.unsent
    "pending": Stored("each", "sent", beside="squares"),
    "squares": Stored("each", "numbers", beside="pending"),
}


@dataclass(frozen=True)
class RuleNumbers:
    """The numbers of a rule, which JSON carries exactly.

    `turn`: iterations since averaging restarted; `apart`: a learner was reset since the centre was the replicas' mean;
    `rate`: the learning rate at the last exchange; `norm`: |total| / k then.
    """

    turn: Natural
    gain: Annotated[float, AtLeast(1)]
    averages: Averages
    apart: bool
    rate: float
    norm: float


@dataclass(frozen=True)
class RuleState:
    """Arrays that all ranks share, this rank's own, by name; and numbers."""

    shared: Mapping[str, Array]
    own: Mapping[str, Array]
    numbers: RuleNumbers
