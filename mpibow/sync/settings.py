"""The base of every rule's settings, and a run's queries of them before the rule is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from mpibow.bounds import Count
from mpibow.errors import ConfigError
from mpibow.sync.rule import Kind
from mpibow.tune import Cap

MOST = 1 << 10  # learners of a rank that are worth asking for


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """A rule's settings; `rule` is the class of a program's own rule, those of mpibow are in RULES by `kind`."""

    rule: ClassVar[Kind | None] = None
    name: str = ""
    resync: Annotated[
        Count, "iterations between resyncs: the mean replica W is computed anew, and the ranks compare theirs"
    ] = 1000

    @property
    def kind(self) -> str:
        """Its rule's key in RULES."""
        return self.name

    @property
    def hosts_only(self) -> str:
        """The setting that a GPU does not run, '' where it runs all."""
        return f"rule {self.name}" if self.rule is not None else ""

    @property
    def bound(self) -> str:
        """The bound on the learners in `check`, as the log names it."""
        return f"rule {self.name}"

    @property
    def behind(self) -> RuleSettings | None:
        """The rule that takes over within the run, if one does."""
        return None

    def check(self, k: int) -> None:
        """Raises ConfigError where the rule cannot keep k learners together."""

    def going_with(self, update: Any) -> Self:
        """The settings adapted to the optimiser `update`. Raises ConfigError if they do not go together."""
        return self

    def restarts(self, before: float, now: float, dropped: bool) -> bool:
        """Whether `Rule.restart` is called at epoch `now`, the iteration before being at `before`.

        `dropped`: the learning rate has dropped since.
        """
        return False

    def at(self, epoch: float) -> RuleSettings:
        """The settings in force at an epoch."""
        return self


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
    """Whether the rule can keep k learners together."""
    try:
        settings.check(k)
    except ConfigError:
        return False
    return True
