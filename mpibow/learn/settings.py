"""The settings of the local update."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from mpibow.bounds import Above, AtLeast, Below
from mpibow.errors import ConfigError
from mpibow.learn.schedules import Constant, Schedule, Warmup


@dataclass(frozen=True)
class Sgd:
    """v <- momentum v + g + weight_decay w;  u = -lr v, or -lr (g + weight_decay w + momentum v) with nesterov."""

    name: Literal["sgd"] = field(default="sgd", kw_only=True)
    lr: Annotated[float, Above(0), "learning rate; not scaled with learners"] = 0.01
    momentum: Annotated[float, AtLeast(0), Below(1), "momentum of each learner"] = 0.0
    nesterov: Annotated[bool, "look one step ahead; needs momentum"] = False
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
    def states(self) -> tuple[str, ...]:
        """What a learner keeps beside its weights, by name."""
        return ("momenta",) if self.momentum else ()

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ConfigError("nesterov: needs momentum above 0, got momentum 0")
