"""Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101), as PyTorch writes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from mpibow.bounds import AtLeast
from mpibow.formulas.formula import Array, Formula
from mpibow.formulas.language import formula
from mpibow.optim.adam import OfMoments, step, step_of_largest
from mpibow.optim.parts import shrunk


def adamw(
    w: Array, g: Array, exp_avg: Array, exp_avg_sq: Array, *,
    rate: float, shrink: float, beta1: float, rest1: float, beta2: float, rest2: float, root: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    u, exp_avg, exp_avg_sq = step(g, exp_avg, exp_avg_sq, rate, beta1, rest1, beta2, rest2, root, eps)
    return shrunk(u, w, shrink), exp_avg, exp_avg_sq


def amsgrad(
    w: Array, g: Array, exp_avg: Array, exp_avg_sq: Array, max_exp_avg_sq: Array, *,
    rate: float, shrink: float, beta1: float, rest1: float, beta2: float, rest2: float, root: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    u, exp_avg, exp_avg_sq, max_exp_avg_sq = step_of_largest(
        g, exp_avg, exp_avg_sq, max_exp_avg_sq, rate, beta1, rest1, beta2, rest2, root, eps
    )
    return shrunk(u, w, shrink), exp_avg, exp_avg_sq, max_exp_avg_sq


@dataclass(frozen=True)
class AdamW(OfMoments):
    """Adam's step without weight decay, and -lr weight_decay w beside it."""

    name: Literal["adamw"] = field(default="adamw", kw_only=True)
    weight_decay: Annotated[
        float, AtLeast(0), "decoupled weight decay: lr times this factor times the weights is subtracted from them"
    ] = 0.01

    @property
    def formula(self) -> Formula:
        return formula(amsgrad if self.amsgrad else adamw)

    def decay(self, rate: float) -> float:
        return rate * self.weight_decay
