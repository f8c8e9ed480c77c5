"""A rule's settings: its two formulas, and how they keep k learners together: when they exchange, by which numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from mpibow.bounds import Count
from mpibow.errors import ConfigError
from mpibow.formulas import Formula, formula
from mpibow.tune import Cap

from .rule_formulas import Form

MOST = 1 << 10  # learners of a rank that are worth asking for
KNOWN = ("share", "k", "gain", "norm", "rate", "turn")  # numbers that the engine gives to any rule's formulas

Replicas = Literal["pulled", "lagging", "reset"]
Gain = Literal["measured", "learners"] | float


@dataclass(frozen=True)
class Averaging:
    """The way k replicas are kept together: alpha, centre momentum mu, period, the data sent, and the outer step.

    `gain` belongs to the outer step mean, `lr` and `outer_momentum` to momentum and nesterov. `own` is that of a
    rule whose formulas are its own, with its `settings`.
    """

    k: int
    alpha: float = 0.0
    mu: float = 0.0
    period: int = 1
    replicas: Replicas = "pulled"
    sends: Literal["steps", "gradients", "nothing"] = "steps"
    outer: Literal["mean", "momentum", "nesterov", "own"] = "mean"
    gain: Gain = 1.0
    lr: float = 1.0
    outer_momentum: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def lags(self) -> bool:
        return self.replicas == "lagging"

    @property
    def in_one_pass(self) -> bool:
        """Whether one pass can move learners that are all one rank's, the centre being their mean."""
        return self.plain or (self.replicas == "pulled" and self.outer == "mean" and self.period == 1)

    @property
    def plain(self) -> bool:
        """Whether the optimiser alone moves the centre: one learner, without an outer step of its own."""
        return self.k == 1 and self.outer == "mean"

    @property
    def correction(self) -> float:
        """alpha, or 0 if nothing pulls."""
        return self.alpha if self.k > 1 and self.replicas != "reset" else 0.0

    def used(self, measured: float) -> float:
        """G: the measured or the set gain, clipped to [1, k]."""
        if self.gain == "measured":
            return measured
        return float(self.k) if self.gain == "learners" else min(max(float(self.gain), 1.0), float(self.k))

    def corrects(self, turn: int) -> bool:
        """Whether iteration number `turn` since the restart, counted from 0, corrects the replicas.

        Lagging ones as published, in the last iteration of a period; pulled ones right behind the exchange.
        """
        return (turn + self.lags) % self.period == 0

    def sends_at(self, turn: int) -> bool:
        """Whether iteration `turn` ends with an all-reduce: in front of the next correction."""
        return self.sends != "nothing" and (self.plain or self.corrects(turn + 1))

    def unfinished(self, turn: int) -> bool:
        """Whether iteration `turn` comes in the midst of a period: steps before it wait for the period's end."""
        return not self.plain and turn % self.period != 0

    def numbers(self, turn: int, rate_ratio: float, received: bool) -> dict[str, float]:
        """The numbers of the formulas in mpibow.sync.rule_formulas but for the gain's, in iteration `turn`.

        `rate_ratio`: the learning rate over that of the exchange before.
        """
        alpha = self.correction if self.corrects(turn) else 0.0
        keep = self.outer_momentum * (rate_ratio if self.outer == "momentum" else 1.0)
        return {
            "alpha": alpha, "pull": self.k * alpha, "mu": self.mu, "share": 1.0 / self.k if received else 0.0,
            "keep": keep, "lr": self.lr, "ahead": self.lr * self.outer_momentum, "rest": self.lr - 1.0,
            "k": self.k,
        }  # fmt: skip


def alpha_limit(k: int, mu: float, lagging: bool) -> float:
    """The alpha below which the replicas and (W, z) settle.

    A replica's distance from what pulls it shrinks by 1 - alpha: alpha < 2. For (W - z, z - z_prev) the step is the
    matrix [[1 - (k + 1) alpha, -mu], [k alpha, mu]], stable (Jury) for alpha < 2 (1 + mu) / (k + 1 + mu).
    """
    return min(2.0, 2.0 * (1.0 + mu) / (k + 1.0 + mu)) if lagging else 2.0


class Formulas(NamedTuple):
    """`apply` is None where nothing follows from a sum, or where the optimiser's step does."""

    send: Formula
    apply: Formula | None

    def read(self, number: str) -> bool:
        """Whether one of them reads this number."""
        return any(number in each.scalars for each in self if each is not None)

    @property
    def moves(self) -> bool:
        """Whether `apply` gives replicas' new weights."""
        return self.apply is not None and self.apply.arrays[0] == "w"


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """A rule's settings, and a run's queries of them before it is at work. A program's own rule is a `Rule`."""

    name: str = ""
    resync: Annotated[
        Count, "iterations between resyncs: the mean replica W is computed anew, and the ranks compare theirs"
    ] = 1000

    @property
    def formulas(self) -> Formulas:
        raise NotImplementedError

    @property
    def kept(self) -> Mapping[str, Form]:
        """The arrays of its formulas beside the centre: they begin as the centre ("weights") or as 0 ("steps")."""
        return {}

    @property
    def alike(self) -> bool:
        """Whether all replicas are the centre itself, at every iteration's start.

        Then a rank on a CPU has one copy of weights and states, which its learners share.
        """
        return False

    @property
    def one_copy(self) -> bool:
        """Whether the learners of a rank may share one copy of the weights, to the end of the run."""
        return self.alike and self.behind is None

    @property
    def follows(self) -> bool:
        """Whether the centre follows the replicas by itself.

        Else all ranks average their weights before each evaluation, checkpoint and change of learners, and at the end.
        """
        return True

    @property
    def forgets(self) -> bool:
        """Whether a restart sets the learners' momenta, and arrays of steps, to 0."""
        return False

    @property
    def hosts_only(self) -> str:
        """The setting that a GPU does not run, '' where it runs all."""
        return ""

    @property
    def bound(self) -> str:
        """The bound on the learners in `of`, as the log names it."""
        return f"rule {self.name}"

    @property
    def behind(self) -> RuleSettings | None:
        """The rule that takes over within the run, if one does."""
        return None

    def of(self, k: int) -> Averaging:
        """How k learners are kept together. Raises ConfigError where the rule cannot keep so many."""
        raise NotImplementedError

    def check(self, k: int) -> None:
        """Raises ConfigError where the rule, or the one behind it, cannot keep k learners together."""
        self.of(k)
        if self.behind is not None:
            self.behind.check(k)

    def going_with(self, update: Any) -> Self:
        """The settings adapted to the optimiser `update`. Raises ConfigError if they do not go together."""
        return self

    def restarts(self, before: float, now: float, dropped: bool) -> bool:
        """Whether averaging restarts at epoch `now`, the iteration before being at `before`.

        `dropped`: the learning rate has dropped since.
        """
        return False

    def at(self, epoch: float) -> RuleSettings:
        """The settings in force at an epoch."""
        return self


@dataclass(frozen=True, kw_only=True)
class Rule(RuleSettings):
    """The base of a program's own rule: two static methods, formulas in the language of mpibow.formulas.language.

    `send(w, u, ...) -> w, summand` follows a learner's local step: w is its weight, u the step. `apply([w], ..., total)
    -> [w], ...` follows an exchange: total is the sum of a period's summands over learners and ranks. The names between
    are the array `centre` and those of `kept`; `apply` returns w, where it takes it, and all of these arrays in its own
    order. Without w in `apply` the exchange may run beside the next gradients.

    Numbers are keyword-only: fields of the class, and `share` = 1 / k, `k` learners, `gain` (mpibow.sync.gain), `norm`
    = |total| / k at the exchange before, the learning `rate`, `turn`, the iterations since the exchange before.
    """

    send: ClassVar[Callable[..., Any]]
    apply: ClassVar[Callable[..., Any]]
    kept: ClassVar[Mapping[str, Form]] = {}

    period: Annotated[Count, "iterations between exchanges"] = 1

    def __post_init__(self) -> None:
        """Raises ConfigError where the formulas are not those of a rule."""
        decorated = "__dataclass_fields__" in vars(type(self)) or not get_annotations(type(self))
        self._require(decorated, "must be a dataclass; write @dataclass(frozen=True)")
        self._require(bool(self.name), "name: must not be empty; give the class one, as name: str = 'average'")
        for half in ("send", "apply"):
            self._require(hasattr(self, half), f"{half}: is missing; write it as a static method")
        send, apply = self.formulas
        assert apply is not None
        own = {each.name for each in fields(self)} - {"name", "resync"}
        for name in sorted(own & {*KNOWN}):
            self._require(False, f"{name}: is a number that every rule has; give the field another name")
        measured = self.of(1).gain == "measured"
        self._require(not measured or self.period == 1, f"gain: is measured at period 1, got period {self.period}")
        numbers = sorted({*KNOWN, *own})
        self._require(send.arrays[:2] == ("w", "u"), f"send: must begin with w, u, got {', '.join(send.arrays)}")
        self._require(
            apply.arrays[-1] == "total",
            f"apply: must end with total, got {', '.join(apply.arrays)}; numbers follow a *",
        )
        for which, each, wanted, arrays in (
            ("send", send, ("w and the summand",) * 2, send.arrays[2:]),
            ("apply", apply, apply.arrays[:-1], apply.arrays[self.formulas.moves : -1]),
        ):
            count = len(each.results)
            of = ", ".join(dict.fromkeys(wanted))
            self._require(count == len(wanted), f"{which}: gives {count} result(s) for {of}")
            for kind, there, names in (("array", ("centre", *self.kept), arrays), ("number", numbers, each.scalars)):
                for name in names:
                    self._require(name in there, f"{which}: no {kind} is called {name}; there are {', '.join(there)}")

    @property
    def hosts_only(self) -> str:
        """The rule: its formulas run on CPUs alone."""
        return f"rule {self.name}"

    @cached_property
    def formulas(self) -> Formulas:
        return Formulas(formula(self.send), formula(self.apply))

    def of(self, k: int) -> Averaging:
        """How k learners are kept together."""
        return Averaging(
            k, period=self.period, replicas="reset", outer="own",
            gain="measured" if self.formulas.read("gain") else 1.0,
            settings={each.name: getattr(self, each.name) for each in fields(self)},
        )  # fmt: skip

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            raise ConfigError(f"rule {self.name or type(self).__name__}: {text}")


def caps(settings: RuleSettings, ranks: int, batches: int) -> tuple[Cap, ...]:
    """The limits on the learners of each of `ranks` ranks, by the rule and by an epoch of so many batches."""
    stable = next((k for k in range(1, MOST) if not _keeps(settings, (k + 1) * ranks)), MOST)
    return tuple(
        Cap(most, why)
        for most, why in (
            (stable, f"{settings.bound} is stable with up to {stable} learner(s) a rank"),
            (max(batches // ranks, 1), f"an epoch has {batches:,} batches for {ranks} rank(s)"),
        )
        if most < MOST
    )


def _keeps(settings: RuleSettings, k: int) -> bool:
    try:
        settings.check(k)
    except ConfigError:
        return False
    return True
