"""Adam (Kingma and Ba, ICLR 2015, arXiv:1412.6980), and with amsgrad Reddi et al. (ICLR 2018), as PyTorch writes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from mpibow.bounds import Above, AtLeast
from mpibow.formulas.formula import Array, Formula
from mpibow.formulas.functions import abs, maximum, sqrt, where
from mpibow.formulas.language import formula
from mpibow.optim.update import SMALL, TINY, Beta, HalfLife, Update, kept_of_both


def adam(
    w: Array, g: Array, exp_avg: Array, exp_avg_sq: Array, *,
    rate: float, decay: float, beta1: float, rest1: float, beta2: float, rest2: float, root: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    g = where(decay != 0, g + decay * w, g)
    exp_avg = beta1 * exp_avg + rest1 * g
    exp_avg = where(abs(exp_avg) < TINY, 0, exp_avg)
    exp_avg_sq = beta2 * exp_avg_sq + rest2 * (g * g)
    exp_avg_sq = where(exp_avg_sq < SMALL, 0, exp_avg_sq)
    return -rate * exp_avg / (root * sqrt(exp_avg_sq) + eps), exp_avg, exp_avg_sq


def amsgrad(
    w: Array, g: Array, exp_avg: Array, exp_avg_sq: Array, max_exp_avg_sq: Array, *,
    rate: float, decay: float, beta1: float, rest1: float, beta2: float, rest2: float, root: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    g = where(decay != 0, g + decay * w, g)
    exp_avg = beta1 * exp_avg + rest1 * g
    exp_avg = where(abs(exp_avg) < TINY, 0, exp_avg)
    exp_avg_sq = beta2 * exp_avg_sq + rest2 * (g * g)
    exp_avg_sq = where(exp_avg_sq < SMALL, 0, exp_avg_sq)
    max_exp_avg_sq = maximum(max_exp_avg_sq, exp_avg_sq)
    return -rate * exp_avg / (root * sqrt(max_exp_avg_sq) + eps), exp_avg, exp_avg_sq, max_exp_avg_sq


@dataclass(frozen=True)
class Adam(Update):
    """m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;  u = -lr m' / (sqrt(v') + eps).

    m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t), t being how many updates this replica's m and v have had.
    """

    name: Literal["adam"] = field(default="adam", kw_only=True)
    lr: Annotated[float, Above(0), "learning rate; not scaled with the number of learners"] = 1e-3
    betas: Annotated[tuple[Beta, Beta], "decay rates of the averages of gradients and of their squares"] = (
        0.9, 0.999,
    )  # fmt: skip
    half_life: Annotated[tuple[HalfLife, HalfLife], "samples after which half is left, in place of a beta"] = (
        None, None,
    )  # fmt: skip
    eps: Annotated[float, AtLeast(0), "added to the root of the average of squared gradients"] = 1e-8
    amsgrad: Annotated[bool, "divide by the largest average of squared gradients so far"] = False

    def at(self, samples: int) -> Adam:
        return replace(self, betas=kept_of_both(self.betas, self.half_life, samples), half_life=(None, None))

    @property
    def formula(self) -> Formula:
        return formula(amsgrad if self.amsgrad else adam)

    @property
    def counts(self) -> bool:
        return True

    def scalars(self, rate: float, count: int) -> tuple[float, ...]:
        return rate / (1 - self.betas[0] ** count), self.weight_decay, *averaging(self.betas, count), self.eps


def averaging(betas: tuple[float, float], count: int) -> tuple[float, ...]:
    """beta and 1 - beta of both averages, and what takes the bias from the root of the second."""
    beta1, beta2 = betas
    return beta1, 1 - beta1, beta2, 1 - beta2, 1 / math.sqrt(1 - beta2**count)
