"""The settings that all optimisers have, and what each declares: its formula, and the scalars of an iteration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from mpibow.bounds import Above, AtLeast, Below
from mpibow.formulas.formula import Formula
from mpibow.optim.schedules import Constant, Schedule, Warmup

Beta = Annotated[float, AtLeast(0), Below(1)]
# A dead unit's averages decay into denormals and stay there: 2 to 3 times the time, seen on Zen 4. So formulas make an
# average that is smaller 0; squares are averaged down to SMALL.
TINY, SMALL = 1e-30, 1e-36


@dataclass(frozen=True)
class Update:
    """An optimiser. Its formula takes a weight, its gradient and one element of each state, and gives the step first.

    The formula depends on settings that hold for all weights only; weight_decay and lr may differ between groups.
    """

    name: str = field(kw_only=True)
    lr: Annotated[float, Above(0), "learning rate; not scaled with learners"] = 0.01
    weight_decay: Annotated[float, AtLeast(0), "added to the gradient, times the weights"] = 0.0
    decay_biases: Annotated[bool, "decay biases and batch norm's weights too"] = False
    clip_value: Annotated[
        Annotated[float, Above(0)] | None, "largest element of a learner's gradient; null is no limit"
    ] = None
    clip_norm: Annotated[
        Annotated[float, Above(0)] | None, "largest norm of a learner's gradient, after clip_value; null is no limit"
    ] = None
    schedule: Annotated[Schedule, "what the rate is multiplied by"] = field(default_factory=Constant)
    warmup: Annotated[Warmup, "a linear start in front of the schedule"] = field(default_factory=Warmup)

    @property
    def formula(self) -> Formula:
        raise NotImplementedError

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the arrays that a replica keeps beside its weights. They begin as 0."""
        return self.formula.arrays[2:]

    @property
    def counts(self) -> bool:
        """Whether scalars depend on how many updates a replica's states have had."""
        return False

    def scalars(self, rate: float, count: int) -> tuple[float, ...]:
        """The formula's scalars at learning rate `rate`; the states' updates are `count`, this one among them."""
        raise NotImplementedError
