"""How k learners are kept together: when they exchange, and the numbers of the rules' formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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

    def on(self, turn: int) -> bool:
        """Whether iteration number `turn` since the restart, counted from 0, corrects the replicas.

        Lagging ones as published, in the last iteration of a period; pulled ones right behind the exchange.
        """
        return (turn + self.lags) % self.period == 0

    def sends_at(self, turn: int) -> bool:
        """Whether iteration `turn` ends with an all-reduce: in front of the next correction."""
        return self.sends != "nothing" and (self.plain or self.on(turn + 1))

    def unfinished(self, turn: int) -> bool:
        """Whether iteration `turn` comes in the midst of a period: steps before it wait for the period's end."""
        return not self.plain and turn % self.period != 0

    def numbers(self, turn: int, turned: float, received: bool) -> dict[str, Any]:
        """The numbers of the formulas in mpibow.sync.rules but for the gain's, in iteration `turn`.

        `turned`: the learning rate over that of the exchange before.
        """
        alpha = self.correction if self.on(turn) else 0.0
        keep = self.outer_momentum * (turned if self.outer == "momentum" else 1.0)
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
