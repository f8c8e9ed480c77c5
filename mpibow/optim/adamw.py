"""Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101), as PyTorch writes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from mpibow.bounds import Above, AtLeast
from mpibow.formulas.formula import Array, Formula
from mpibow.formulas.functions import abs, maximum, sqrt, where
from mpibow.formulas.language import formula
from mpibow.optim.adam import averaging
from mpibow.optim.update import SMALL, TINY, Beta, HalfLife, Update, kept_of_both


def adamw(
    w: Array, g: Array, exp_avg: Array, exp_avg_sq: Array, *,
    rate: float, shrink: float, beta1: float, rest1: float, beta2: float, rest2: float, root: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    exp_avg = beta1 * exp_avg + rest1 * g
    exp_avg = where(abs(exp_avg) < TINY, 0, exp_avg)
    exp_avg_sq = beta2 * exp_avg_sq + rest2 * (g * g)
    exp_avg_sq = where(exp_avg_sq < SMALL, 0, exp_avg_sq)
    u = -rate * exp_avg / (root * sqrt(exp_avg_sq) + eps)
    return where(shrink != 0, u - shrink * w, u), exp_avg, exp_avg_sq


def amsgrad(
    w: Array, g: Array, exp_avg: Array, exp_avg_sq: Array, max_exp_avg_sq: Array, *,
    rate: float, shrink: float, beta1: float, rest1: float, beta2: float, rest2: float, root: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    exp_avg = beta1 * exp_avg + rest1 * g
    exp_avg = where(abs(exp_avg) < TINY, 0, exp_avg)
    exp_avg_sq = beta2 * exp_avg_sq + rest2 * (g * g)
    exp_avg_sq = where(exp_avg_sq < SMALL, 0, exp_avg_sq)
    max_exp_avg_sq = maximum(max_exp_avg_sq, exp_avg_sq)
    u = -rate * exp_avg / (root * sqrt(max_exp_avg_sq) + eps)
    return where(shrink != 0, u - shrink * w, u), exp_avg, exp_avg_sq, max_exp_avg_sq


@dataclass(frozen=True)
class AdamW(Update):
    """Adam's step without weight decay, and -lr weight_decay w beside it."""

    name: Literal["adamw"] = field(default="adamw", kw_only=True)
    lr: Annotated[float, Above(0), "learning rate; not scaled with the number of learners"] = 1e-3
    weight_decay: Annotated[
        float, AtLeast(0), "decoupled weight decay: lr times this factor times the weights is subtracted from them"
    ] = 0.01
    betas: Annotated[tuple[Beta, Beta], "decay rates of the averages of gradients and of their squares"] = (
        0.9, 0.999,
    )  # fmt: skip
    half_life: Annotated[tuple[HalfLife, HalfLife], "samples after which half is left, in place of a beta"] = (
        None, None,
    )  # fmt: skip
    eps: Annotated[float, AtLeast(0), "added to the root of the average of squared gradients"] = 1e-8
    amsgrad: Annotated[bool, "divide by the largest average of squared gradients so far"] = False

    def at(self, samples: int) -> AdamW:
        return replace(self, betas=kept_of_both(self.betas, self.half_life, samples), half_life=(None, None))

    @property
    def formula(self) -> Formula:
        return formula(amsgrad if self.amsgrad else adamw)

    @property
    def counts(self) -> bool:
        return True

    def scalars(self, rate: float, count: int) -> tuple[float, ...]:
        step, shrink = rate / (1 - self.betas[0] ** count), rate * self.weight_decay
        return step, shrink, *averaging(self.betas, count), self.eps
