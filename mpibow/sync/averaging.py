"""What a rule's settings come to with k learners, and how many learners a rule can keep together."""

from __future__ import annotations

from dataclasses import dataclass

from mpibow.errors import ConfigError
from mpibow.sync.settings import Settings, Sma
from mpibow.tune import Cap

MOST = 1 << 10  # learners of a rank that are worth asking for


@dataclass(frozen=True)
class Averaging:
    """How k replicas are kept together: alpha, centre momentum mu, period, gain (auto, None or a number), its delay.

    `orthogonal`: whether the common step is.
    """

    k: int
    alpha: float
    mu: float
    period: int
    gain: str | float | None
    delay: int
    orthogonal: bool = False

    @property
    def pulled(self) -> bool:
        """Whether replicas are pulled to their mean itself and the centre is that mean."""
        return self.gain is not None or self.k == 1

    @property
    def correction(self) -> float:
        """alpha, or 0 for one learner."""
        return self.alpha if self.k > 1 else 0.0

    def used(self, measured: float) -> float:
        """G: the one that is set, held within [1, k], or the measured one."""
        return measured if self.gain == "auto" else min(max(float(self.gain or 1.0), 1.0), float(self.k))

    @property
    def even(self) -> float:
        """G of the matrices of an orthogonal common step, at most: k, where none is set."""
        return float(self.k) if self.gain == "auto" else self.used(1.0)

    def on(self, turn: int) -> bool:
        """Whether iteration number `turn` since the restart, counted from 0, corrects the replicas."""
        return (turn + 1) % self.period == 0

    def sends(self, turn: int) -> bool:
        """Whether iteration `turn` ends with an all-reduce: W must be known where it is used next."""
        return self.pulled or self.on(turn + 1)


def alpha_limit(k: int, mu: float, pulled: bool) -> float:
    """The alpha below which the replicas and (W, z) settle.

    A replica's distance from what pulls it shrinks by 1 - alpha: alpha < 2. For (W - z, z - z_prev) the step is the
    matrix [[1 - (k + 1) alpha, -mu], [k alpha, mu]], stable (Jury) for alpha < 2 (1 + mu) / (k + 1 + mu).
    """
    return 2.0 if pulled else min(2.0, 2.0 * (1.0 + mu) / (k + 1.0 + mu))


def averaging(settings: Sma, k: int) -> Averaging:
    """The averaging of k learners. Raises ConfigError where a fixed alpha would not let it settle, with the limit."""
    gain = None if settings.gain == "none" else settings.gain
    mu = 0.9 if settings.momentum == "auto" else settings.momentum
    alpha = 1.0 / k if settings.alpha == "auto" else settings.alpha
    rule = Averaging(k, alpha, mu, settings.period, gain, settings.delay, settings.orthogonal(k))
    limit = alpha_limit(k, mu, rule.pulled)
    if k > 1 and alpha >= limit:
        raise ConfigError(
            f"rule.alpha: must be below {limit:.4g} for {k} learners, got {alpha:g}; auto is 1 / learners"
        )
    return rule


def check_rule(settings: Settings, k: int) -> None:
    """Raises ConfigError where the rule cannot keep k learners together."""
    if isinstance(settings, Sma):
        averaging(settings, k)


def most_learners(settings: Settings, ranks: int) -> int:
    """Learners that each of `ranks` ranks may have at most, since a fixed alpha keeps no more together."""
    for each in range(1, MOST):
        try:
            check_rule(settings, (each + 1) * ranks)
        except ConfigError:
            return each
    return MOST


def caps(settings: Settings, ranks: int) -> tuple[Cap, ...]:
    """What the rule allows the tuner: learners whose averaging settles."""
    most = most_learners(settings, ranks)
    if not isinstance(settings, Sma) or most == MOST:
        return ()
    return (Cap(most, f"rule.alpha {settings.alpha} is stable with up to {most} learner(s) a rank"),)


def may_spread(settings: Settings) -> bool:
    """Whether there is a number of learners of which the common step is orthogonal."""
    return isinstance(settings, Sma) and settings.orthogonal(MOST)
