"""The family of rules, as settings: replicas that are pulled, lag or are reset, an exchange, an outer step, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from mpibow.bounds import AtLeast, Below, Count, NotEmpty, NotNegative, Positive, Rising
from mpibow.errors import ConfigError
from mpibow.formulas import formula

from .rule import Averaging, Formulas, RuleSettings, alpha_limit
from .rule_formulas import APPLY, KEPT, Form, lag, local, pull, reset

MOVING = ("momentum", "nesterov")  # outer steps with a velocity
MEASURED = "sgd"  # the optimiser that the gain was derived for, and measured with

# Fields of Averaging by a rule's name; alpha of lagging replicas is `share` over the learners; `then` is the rule
# after a switch.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "sma": {"gain": "measured"},
    "crossbow": {"replicas": "lagging", "mu": 0.9},  # Koliousis et al., arXiv:1901.02244, algorithm 1
    "easgd": {"replicas": "lagging", "period": 10, "share": 0.9},  # Zhang et al., arXiv:1412.6651
    "eamsgd": {"replicas": "lagging", "period": 10, "share": 0.9},  # with Nesterov's momentum in every learner
    "ssgd": {"replicas": "reset", "sends": "gradients"},
    "local_sgd": {"replicas": "reset", "period": 16},  # Stich, arXiv:1805.09767
    "post_local_sgd": {"replicas": "reset", "sends": "gradients", "then": "local_sgd"},  # Lin et al., arXiv:1808.07217
    "slowmo": {"replicas": "reset", "period": 12, "outer": "momentum", "outer_momentum": 0.7},  # arXiv:1910.00643
    "diloco": {"replicas": "reset", "period": 500, "outer": "nesterov", "lr": 0.7, "outer_momentum": 0.9},
    "muloco": {"replicas": "reset", "period": 30, "outer": "nesterov", "lr": 0.7, "outer_momentum": 0.9},
}

if TYPE_CHECKING:
    Name: TypeAlias = str
    Next: TypeAlias = str
else:
    Name = Literal[tuple(PRESETS)]
    Next = Literal[("auto", *(name for name in PRESETS if "then" not in PRESETS[name]))]

Auto = Literal["auto"]
Momentum = Auto | Annotated[NotNegative, Below(1)]
Epochs = Annotated[tuple[Positive, ...], NotEmpty(), Rising()]


@dataclass(frozen=True)
class Outer:
    """The step of the mean W behind an exchange, made of D, the mean over learners of their steps since the last."""

    name: Annotated[
        Literal["auto", "mean", "momentum", "nesterov"],
        "step of the mean replica: the mean step D, or D with momentum; auto is the rule's own",
    ] = "auto"
    gain: Annotated[
        Literal["auto", "measured", "learners"] | Annotated[float, AtLeast(1)],
        "gain G: the step is G mean steps, at most one for each learner; with mean only; auto is the "
        f"rule's own: measured under sma with update {MEASURED} and period 1, else 1",
    ] = "auto"
    lr: Annotated[Auto | Positive, "rate of momentum and nesterov; auto is the rule's own, or 1"] = "auto"
    momentum: Annotated[Momentum, "momentum of momentum and nesterov; auto is the rule's own, or 0.9"] = "auto"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A point of the family; auto is what the rule's name stands for."""

    replicas: Annotated[
        Literal["auto", "pulled", "lagging", "reset"],
        "replicas are pulled to their mean W, to a centre that lags behind W, or reset to W by every exchange; auto is "
        "the rule's own",
    ] = "auto"
    alpha: Annotated[
        Auto | NotNegative,
        "share of a replica's distance that a correction removes; auto is 1 for pulled replicas, and for lagging ones "
        "1 / learners, under easgd and eamsgd 0.9 / learners",
    ] = "auto"
    momentum: Annotated[Momentum, "momentum of the centre of lagging replicas; auto is the rule's own"] = "auto"
    period: Annotated[Auto | Count, "iterations between exchanges and corrections; auto is the rule's own, or 1"] = (
        "auto"
    )
    sends: Annotated[
        Literal["auto", "steps", "gradients"],
        "ranks sum the steps of their learners' optimisers, or gradients of which one optimiser makes a step; auto is "
        "the rule's own",
    ] = "auto"
    outer: Outer = field(default_factory=Outer)


@dataclass(frozen=True, kw_only=True)
class Then(Choice):
    """The rule from an epoch on."""

    name: Annotated[Next, "rule from `epoch` on; auto is ssgd, under post_local_sgd local_sgd"] = "auto"
    epoch: Annotated[Positive, "epoch at which it takes over"]


@dataclass(frozen=True, kw_only=True)
class Family(Choice, RuleSettings):
    """Synchronous averaging: docs/averaging.md helps to choose a rule; its formulas are in rule_formulas.py."""

    name: Annotated[Name, "rule; every other setting of it may be changed"] = "sma"
    restart: Annotated[
        Literal["auto", "never"] | Epochs,
        "when replicas restart from the centre: at these epochs; auto: when a schedule drops the learning rate, but "
        "never where replicas are reset",
    ] = "auto"
    reset_momentum: Annotated[bool, "reset the learners' momenta, and the outer step's, at a restart"] = False
    then: Annotated[Then | None, "another rule from an epoch on, as {name: ssgd, epoch: 30}; null: none"] = None

    def __post_init__(self) -> None:
        if fault := _fault(self, self.point):
            raise ConfigError(fault)
        if self.then is None and "then" in PRESETS[self.name]:
            raise ConfigError(f"then: {self.name} needs the epoch at which learners part, as then: {{epoch: 75}}")
        try:
            self.behind  # noqa: B018
        except ConfigError as error:
            raise ConfigError(f"then.{error}") from None

    @cached_property
    def formulas(self) -> Formulas:
        if self.alike:
            return Formulas(formula(local), None)
        apply = formula(lag if self.point.replicas == "lagging" else APPLY[self.point.outer])
        return Formulas(formula(pull), reset(apply) if self.point.replicas == "reset" else apply)

    @property
    def kept(self) -> Mapping[str, Form]:
        apply = self.formulas.apply
        return {} if apply is None else {name: KEPT[name] for name in apply.arrays if name in KEPT}

    @property
    def alike(self) -> bool:
        return self.point.sends == "gradients"

    @property
    def forgets(self) -> bool:
        return self.reset_momentum

    @property
    def hosts_only(self) -> str:
        if self.point.outer != "mean":
            return f"rule.outer.name: {self.point.outer}"
        if self.point.replicas == "reset" and not self.alike:
            return "rule.replicas: reset, with sends: steps,"
        return "rule.then" if self.then else ""

    @property
    def bound(self) -> str:
        return f"rule.alpha {self.alpha}"

    @cached_property
    def point(self) -> Averaging:
        """The point of the family for one learner."""
        preset = PRESETS[self.name]
        outer = self.outer
        own = {key: value for key, value in preset.items() if key not in ("share", "then")}
        given: dict[str, Any] = {
            "replicas": self.replicas, "mu": self.momentum, "period": self.period, "sends": self.sends,
            "outer": outer.name, "gain": outer.gain, "lr": outer.lr, "outer_momentum": outer.momentum,
        }  # fmt: skip
        point = replace(Averaging(1), **{**own, **{key: value for key, value in given.items() if value != "auto"}})
        if outer.gain == "auto" and not _measurable(point):
            point = replace(point, gain=1.0)
        if "outer_momentum" not in preset and outer.momentum == "auto" and point.outer in MOVING:
            point = replace(point, outer_momentum=0.9)
        return point

    @cached_property
    def behind(self) -> Family | None:
        """The rule that takes over, if one does."""
        if self.then is None:
            return None
        name = PRESETS[self.name].get("then", "ssgd") if self.then.name == "auto" else self.then.name
        own = {each.name: getattr(self.then, each.name) for each in fields(Choice)}
        return Family(name=name, resync=self.resync, restart=self.restart, reset_momentum=self.reset_momentum, **own)

    def of(self, k: int) -> Averaging:
        """The point for k learners. Raises ConfigError if a fixed alpha would not let their averaging settle."""
        share = PRESETS[self.name].get("share", 1.0)
        replicas = self.point.replicas
        auto, text = (1.0, "1") if replicas == "pulled" else (share / k, f"{share:g} / learners")
        alpha = auto if self.alpha == "auto" else self.alpha
        limit = alpha_limit(k, self.point.mu, replicas == "lagging")
        if k > 1 and alpha >= limit:
            raise ConfigError(f"rule.alpha: must be below {limit:.4g} for {k} learners, got {alpha:g}; auto is {text}")
        return replace(self.point, k=k, alpha=alpha)

    def going_with(self, update: Any) -> Self:
        """A gain of auto becomes 1 for an optimiser without a measured gain: replicas move by their mean step."""
        if self.name == "muloco" and update.name != "muon":
            raise ConfigError(
                f"rule.name: muloco is diloco with Muon in every learner, got update.name {update.name}; "
                "set update.name to muon, or rule.name to diloco"
            )
        if self.name == "eamsgd" and not getattr(update, "nesterov", False):
            raise ConfigError(
                "rule.name: eamsgd is easgd with Nesterov's momentum in every learner; set update.nesterov to true, "
                "or rule.name to easgd"
            )
        if self.then is not None and self.behind is not None:
            fitting = self.behind.going_with(update)
            if fitting.outer != self.then.outer:
                return replace(self, then=replace(self.then, outer=fitting.outer)).going_with(update)
        alike = all(each.name == MEASURED for each in update.optimisers)
        if self.point.gain == "measured" and self.outer.gain == "auto" and not alike:
            return replace(self, outer=replace(self.outer, gain=1.0))
        return self

    def restarts(self, before: float, now: float, dropped: bool) -> bool:
        if isinstance(self.restart, tuple):
            return any(before < epoch <= now for epoch in self.restart)
        return self.restart == "auto" and dropped and self.point.replicas != "reset"

    def at(self, epoch: float) -> Family:
        return self if self.then is None or self.behind is None or epoch < self.then.epoch else self.behind


def _measurable(point: Averaging) -> bool:
    """Whether there is a sum of single steps whose noise gives a gain."""
    return point.period == 1 and point.sends == "steps" and point.replicas != "lagging" and point.outer == "mean"


def _fault(settings: Family, point: Averaging) -> str:
    """A message about settings that do not go together, '' if all do."""
    outer = settings.outer
    replicas = point.replicas
    moving = point.outer in MOVING
    gradients = point.sends == "gradients"
    lagging = replicas == "lagging"
    faults = {
        f"momentum: is that of a lagging centre, got {settings.momentum} with replicas {replicas}; leave it at auto": (
            settings.momentum != "auto" and not lagging
        ),
        f"alpha: pulls replicas, got {settings.alpha} with replicas reset; leave it at auto": (
            settings.alpha != "auto" and replicas == "reset"
        ),
        "alpha: must be above 0 with replicas lagging, got 0.0": lagging and settings.alpha == 0,
        f"sends: gradients needs replicas reset, got {replicas}; set sends to steps": gradients and replicas != "reset",
        f"period: must be 1 with sends gradients, got {point.period}; set sends to steps": gradients
        and point.period != 1,
        f"outer.name: must be mean with sends gradients, got {point.outer}; set sends to steps": gradients
        and point.outer != "mean",
        f"outer.name: must be mean with replicas lagging, got {point.outer}; set replicas to pulled": lagging
        and point.outer != "mean",
        f"outer.gain: must be 1 with replicas lagging, got {point.gain}; set replicas to pulled": lagging
        and point.gain != 1.0,
        f"outer.gain: is that of mean, got {outer.gain} with {point.outer}; set outer.lr": moving
        and outer.gain != "auto",
        "outer.gain: is measured of single steps, at period 1; set it to a number": outer.gain == "measured"
        and not _measurable(point),
        f"outer.lr: is that of momentum and nesterov, got {outer.lr} with {point.outer}; set outer.gain": not moving
        and outer.lr != "auto",
        f"outer.momentum: is that of momentum and nesterov, got {outer.momentum} with {point.outer}": not moving
        and outer.momentum != "auto",
    }
    return next((text for text, found in faults.items() if found), "")


@dataclass(frozen=True)
class Independent(RuleSettings):
    """Learners that are not kept together, to measure the cost of averaging. The centre is their mean."""

    name: Literal["independent"] = field(default="independent", kw_only=True)
    period: Annotated[Count, "iterations between two exchanges of the ranks"] = 50

    @property
    def formulas(self) -> Formulas:
        return Formulas(formula(local), None)

    @property
    def follows(self) -> bool:
        return False

    def of(self, k: int) -> Averaging:
        return Averaging(k, period=self.period, sends="nothing", outer="own")


if TYPE_CHECKING:
    AnyRule: TypeAlias = RuleSettings
else:
    AnyRule = Family | Independent  # what a config's hint takes
