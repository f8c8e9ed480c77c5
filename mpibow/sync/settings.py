"""The settings of the rules that keep the replicas together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from mpibow.bounds import Above, AtLeast, Below, NotEmpty, Rising
from mpibow.errors import ConfigError

MANY = 4  # from so many learners on the common step is orthogonal by default; chosen on the cells of results/sma.md

Epochs = Annotated[tuple[Annotated[float, Above(0)], ...], NotEmpty(), Rising()]


@dataclass(frozen=True)
class RuleSettings:
    """What every rule's settings have."""

    name: str = field(kw_only=True)
    resync: Annotated[
        int, AtLeast(1), "iterations between resyncs: the mean replica W is computed anew, and the ranks compare theirs"
    ] = field(default=1000, kw_only=True)

    def restarts(self, before: float, now: float, dropped: bool) -> bool:
        """Whether `Rule.restart` is called at epoch `now`, the iteration before being at `before`.

        `dropped`: the learning rate has dropped since.
        """
        return False


@dataclass(frozen=True)
class Sma(RuleSettings):
    """Synchronous model averaging: mpibow.sync.oracle has the formulas, with gain none and with a gain."""

    name: Literal["sma"] = field(default="sma", kw_only=True)
    gain: Annotated[
        Literal["auto", "none"] | Annotated[float, AtLeast(1)],
        "gain G: the common step is G - 1 mean steps; auto measures it; none is the published rule, with no such step",
    ] = "auto"
    delay: Annotated[
        Literal[0, 1], "iterations by which the common step is late; 1 hides the all-reduce, but is less stable"
    ] = 0
    common: Annotated[
        Literal["auto", "mean", "orthogonal"],
        "the common step: the mean step, or the mean step with orthogonalised matrices, as in Muon; auto is orthogonal "
        f"from {MANY} learners on, with gain auto and delay 0, and mean otherwise",
    ] = "auto"
    alpha: Annotated[
        Literal["auto"] | Annotated[float, Above(0)], "share of w - z that a correction removes; auto is 1 / learners"
    ] = "auto"
    momentum: Annotated[
        Literal["auto"] | Annotated[float, AtLeast(0), Below(1)],
        "the centre's momentum; only with gain none, where auto is 0.9",
    ] = "auto"
    period: Annotated[int, AtLeast(1), "iterations between corrections"] = 1
    restart: Annotated[
        Literal["auto", "never"] | Epochs,
        "when replicas restart from the centre: at these epochs; auto: when a schedule drops the learning rate",
    ] = "auto"
    reset_momentum: Annotated[bool, "reset the learners' momenta at a restart"] = False

    def orthogonal(self, k: int) -> bool:
        """Whether the common step of k learners is."""
        return self.common == "orthogonal" or (
            self.common == "auto" and self.gain == "auto" and self.delay == 0 and k >= MANY
        )

    def restarts(self, before: float, now: float, dropped: bool) -> bool:
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
                "common: orthogonal needs a common step, and gain none has none; set gain to auto, or common to mean"
            )
        if self.common == "orthogonal" and self.delay == 1:
            raise ConfigError(
                "common: orthogonal needs delay 0, got 1: with delay 1 the matrices would be computed while learners "
                "compute; set delay to 0, or common to mean"
            )


@dataclass(frozen=True)
class Ssgd(RuleSettings):
    """Synchronous SGD: every replica takes the same step along the mean gradient."""

    name: Literal["ssgd"] = field(default="ssgd", kw_only=True)
    scale_lr: Annotated[bool, "multiply the learning rate by the number of learners"] = False


@dataclass(frozen=True)
class Independent(RuleSettings):
    """Learners that are not kept together, to measure the cost of averaging. The centre is their mean."""

    name: Literal["independent"] = field(default="independent", kw_only=True)
    period: Annotated[int, AtLeast(1), "iterations between two exchanges of the ranks"] = 50


Settings = Sma | Ssgd | Independent
MEASURED = ("sgd",)  # the optimisers that `gain: auto` was derived for, and measured with


def going_with(update: str, rule: Settings) -> Settings:
    """The rule as it goes with the optimiser called `update`.

    Where no gain was measured replicas are pulled to their mean, which moves by their mean step: gain 1. A gain or a
    common step that is set stays.
    """
    if isinstance(rule, Sma) and rule.gain == rule.common == "auto" and update not in MEASURED:
        return replace(rule, gain=1.0, common="mean")
    return rule
