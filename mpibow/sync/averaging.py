"""What a rule's settings come to with k learners, and how many learners a rule can keep together."""

from __future__ import annotations

from mpibow.errors import ConfigError
from mpibow.sync.settings import Settings, Sma
from mpibow.sync.sma import Averaging, alpha_limit
from mpibow.tune import Cap

MOST = 1 << 10  # learners of a rank that are worth asking for


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
