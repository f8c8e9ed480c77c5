"""Adam (Kingma and Ba, ICLR 2015, arXiv:1412.6980), and with amsgrad Reddi et al. (ICLR 2018), as PyTorch writes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self

from mpibow.bounds import Above, AtLeast
from mpibow.formulas.formula import Array, Formula
from mpibow.formulas.functions import maximum, sqrt
from mpibow.formulas.language import formula
from mpibow.optim.parts import averaged, averaged_square, decayed
from mpibow.optim.update import Beta, HalfLife, Update, kept_of_both


def step(
    g: Any, exp_avg: Any, exp_avg_sq: Any, rate: Any, beta1: Any, rest1: Any, beta2: Any, rest2: Any, root: Any,
    eps: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Adam's and AdamW's."""
    exp_avg = averaged(exp_avg, g, beta1, rest1)
    exp_avg_sq = averaged_square(exp_avg_sq, g, beta2, rest2)
    return -rate * exp_avg / (root * sqrt(exp_avg_sq) + eps), exp_avg, exp_avg_sq


def step_of_largest(
    g: Any, exp_avg: Any, exp_avg_sq: Any, max_exp_avg_sq: Any, rate: Any, beta1: Any, rest1: Any, beta2: Any,
    rest2: Any, root: Any, eps: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The same with amsgrad."""
    exp_avg = averaged(exp_avg, g, beta1, rest1)
    exp_avg_sq = averaged_square(exp_avg_sq, g, beta2, rest2)
    max_exp_avg_sq = maximum(max_exp_avg_sq, exp_avg_sq)
    return -rate * exp_avg / (root * sqrt(max_exp_avg_sq) + eps), exp_avg, exp_avg_sq, max_exp_avg_sq


def adam(
    w: Array, g: Array, exp_avg: Array, exp_avg_sq: Array, *,
    rate: float, decay: float, beta1: float, rest1: float, beta2: float, rest2: float, root: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    g = decayed(g, w, decay)
    return step(g, exp_avg, exp_avg_sq, rate, beta1, rest1, beta2, rest2, root, eps)


def amsgrad(
    w: Array, g: Array, exp_avg: Array, exp_avg_sq: Array, max_exp_avg_sq: Array, *,
    rate: float, decay: float, beta1: float, rest1: float, beta2: float, rest2: float, root: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    g = decayed(g, w, decay)
    return step_of_largest(g, exp_avg, exp_avg_sq, max_exp_avg_sq, rate, beta1, rest1, beta2, rest2, root, eps)


@dataclass(frozen=True)
class OfMoments(Update):
    """The common part of Adam and AdamW."""

    lr: Annotated[float, Above(0), "learning rate; not scaled with the number of learners"] = 1e-3
    betas: Annotated[tuple[Beta, Beta], "decay rates of the averages of gradients and of their squares"] = (
        0.9, 0.999,
    )  # fmt: skip
    half_life: Annotated[tuple[HalfLife, HalfLife], "samples after which half is left, in place of a beta"] = (
        None, None,
    )  # fmt: skip
    eps: Annotated[float, AtLeast(0), "added to the root of the average of squared gradients"] = 1e-8
    amsgrad: Annotated[bool, "divide by the largest average of squared gradients so far"] = False

    def at(self, samples: int) -> Self:
        if self.half_life == (None, None):
            return self
        return replace(self, betas=kept_of_both(self.betas, self.half_life, samples), half_life=(None, None))

    @property
    def counts(self) -> bool:
        return True

    def scalars(self, rate: float, count: int) -> tuple[float, ...]:
        beta1, beta2 = self.betas
        return self._scalars(rate, self.betas, (beta1**count, beta2**count))

    def scalars_at(self, rate: float, count: int, samples: int, seen: int) -> tuple[float, ...]:
        """With a half-life, an average's bias depends on samples seen: the samples of an update may have changed."""
        betas = kept_of_both(self.betas, self.half_life, samples)
        left = kept_of_both((betas[0] ** count, betas[1] ** count), self.half_life, seen)
        return self._scalars(rate, betas, left)

    def _scalars(self, rate: float, betas: tuple[float, float], left: tuple[float, float]) -> tuple[float, ...]:
        """The rate without the bias of the first average; weight decay; each beta and 1 - beta; the factor that removes
        the bias from the root of the second average; eps. `left` is each average's remaining share of its initial 0."""
        (beta1, beta2), (first, second) = betas, left
        unbiased, root = rate / (1 - first), 1 / math.sqrt(1 - second)
        return unbiased, self.decay(rate), beta1, 1 - beta1, beta2, 1 - beta2, root, self.eps

    def decay(self, rate: float) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class Adam(OfMoments):
    """m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;  u = -lr m' / (sqrt(v') + eps).

    m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t), t being how many updates this replica's m and v have had.
    """

    name: Literal["adam"] = field(default="adam", kw_only=True)

    @property
    def formula(self) -> Formula:
        return formula(amsgrad if self.amsgrad else adam)

    def decay(self, rate: float) -> float:
        return self.weight_decay
