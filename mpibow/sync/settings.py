"""The settings of the rules that keep the replicas together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from mpibow.bounds import Above, AtLeast, Below, NotEmpty, Rising
from mpibow.errors import ConfigError

MANY = 4  # from so many learners on the common step is orthogonal by default; chosen on the cells of results/sma.md

Epochs = Annotated[tuple[Annotated[float, Above(0)], ...], NotEmpty(), Rising()]
Resync = Annotated[int, AtLeast(1), "iterations between setting W to the replicas' true mean and comparing ranks"]


@dataclass(frozen=True)
class Sma:
    """Synchronous model averaging: design section 5 with gain none, 5b with a gain."""

    name: Literal["sma"] = field(default="sma", kw_only=True)
    gain: Annotated[
        Literal["auto", "none"] | Annotated[float, AtLeast(1)],
        "how far the common step goes; auto measures it, none is the published rule, which has no such step",
    ] = "auto"
    delay: Annotated[
        Literal[0, 1], "iterations that the common step comes late; 1 hides the all-reduce and is less stable"
    ] = 0
    common: Annotated[
        Literal["auto", "mean", "orthogonal"],
        "the common step: the mean step, or that with its matrices orthogonalised, as in Muon; auto is orthogonal "
        f"from {MANY} learners on, with gain auto and delay 0, and mean otherwise",
    ] = "auto"
    alpha: Annotated[
        Literal["auto"] | Annotated[float, Above(0)], "how much of w - z is corrected; auto is 1 / learners"
    ] = "auto"
    momentum: Annotated[
        Literal["auto"] | Annotated[float, AtLeast(0), Below(1)],
        "the centre's momentum, with gain none only; auto is 0.9 there",
    ] = "auto"
    period: Annotated[int, AtLeast(1), "iterations from correction to correction"] = 1
    restart: Annotated[
        Literal["auto", "never"] | Epochs, "when replicas start again from the centre; auto: where the rate drops"
    ] = "auto"
    reset_momentum: Annotated[bool, "set the learners' momenta to 0 at a restart"] = False
    resync: Resync = 1000

    def orthogonal(self, k: int) -> bool:
        """Whether the common step of k learners is."""
        return self.common == "orthogonal" or (
            self.common == "auto" and self.gain == "auto" and self.delay == 0 and k >= MANY
        )

    def restarts(self, before: float, now: float, dropped: bool) -> bool:
        """Whether replicas do at epoch `now`, the iteration before being at `before`; `dropped`: the rate has since."""
        if isinstance(self.restart, tuple):
            return any(before < epoch <= now for epoch in self.restart)
        return self.restart == "auto" and dropped

    def __post_init__(self) -> None:
        if self.momentum != "auto" and self.gain != "none":
            raise ConfigError(
                f"momentum: is read with gain none only, got momentum {self.momentum} with gain {self.gain}; "
                "leave it at auto or set gain to none"
            )
        if self.common == "orthogonal" and self.gain == "none":
            raise ConfigError(
                "common: orthogonal is a common step's, which gain none has not; set gain to auto, or common to mean"
            )
        if self.common == "orthogonal" and self.delay == 1:
            raise ConfigError(
                "common: orthogonal wants delay 0, got 1: of sums that come late its matrices would have to be worked "
                "out while learners compute; set delay to 0, or common to mean"
            )


@dataclass(frozen=True)
class Ssgd:
    """Synchronous SGD: every replica takes the same step along the mean gradient."""

    name: Literal["ssgd"] = field(default="ssgd", kw_only=True)
    scale_lr: Annotated[bool, "multiply the learning rate by the number of learners"] = False
    resync: Resync = 1000


@dataclass(frozen=True)
class Independent:
    """Learners that are not kept together: to measure by what averaging costs. The centre is their mean."""

    name: Literal["independent"] = field(default="independent", kw_only=True)
    period: Annotated[int, AtLeast(1), "iterations from one talk of the ranks to the next"] = 50
    resync: Resync = 1000


Settings = Sma | Ssgd | Independent
