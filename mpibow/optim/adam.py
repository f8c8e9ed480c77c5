"""Adam (Kingma and Ba, ICLR 2015, arXiv:1412.6980), with amsgrad Reddi et al. (ICLR 2018), and AdamW, its form with
decoupled weight decay (Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101), as PyTorch writes them."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Literal

from mpibow.bounds import NotNegative, Positive
from mpibow.formulas import Array, Arrays, Formula, formula
from mpibow.formulas.functions import maximum, sqrt

from .update import DECOUPLED, Scalars, TwoAverages, averaged, averaged_square, both_kept, decayed, shrunk


def adam(
    w: Array,
    g: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    *,
    rate: float,
    decay: float,
    shrink: float,
    beta1: float,
    rest1: float,
    beta2: float,
    rest2: float,
    root: float,
    eps: float,
) -> Arrays:
    """Adam's weight decay is `decay`, AdamW's `shrink`; the other one is 0, and leaves no trace."""
    g = decayed(g, w, decay)
    exp_avg = averaged(exp_avg, g, beta1, rest1)
    exp_avg_sq = averaged_square(exp_avg_sq, g, beta2, rest2)
    u = -rate * exp_avg / (root * sqrt(exp_avg_sq) + eps)
    return shrunk(u, w, shrink), exp_avg, exp_avg_sq


def amsgrad(
    w: Array,
    g: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    max_exp_avg_sq: Array,
    *,
    rate: float,
    decay: float,
    shrink: float,
    beta1: float,
    rest1: float,
    beta2: float,
    rest2: float,
    root: float,
    eps: float,
) -> Arrays:
    g = decayed(g, w, decay)
    exp_avg = averaged(exp_avg, g, beta1, rest1)
    exp_avg_sq = averaged_square(exp_avg_sq, g, beta2, rest2)
    max_exp_avg_sq = maximum(max_exp_avg_sq, exp_avg_sq)
    u = -rate * exp_avg / (root * sqrt(max_exp_avg_sq) + eps)
    return shrunk(u, w, shrink), exp_avg, exp_avg_sq, max_exp_avg_sq


@dataclass(frozen=True)
class Adam(TwoAverages):
    """m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;  u = -lr m' / (sqrt(v') + eps).

    m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t), t being how many updates this replica's m and v have had.
    """

    lr: Annotated[Positive, "learning rate; not scaled with the number of learners"] = 1e-3
    eps: Annotated[NotNegative, "added to the root of the average of squared gradients"] = 1e-8
    amsgrad: Annotated[bool, "divide by the largest average of squared gradients so far"] = False
    _: KW_ONLY
    name: Literal["adam"] = "adam"

    @property
    def formula(self) -> Formula:
        return formula(amsgrad if self.amsgrad else adam)

    @property
    def counts(self) -> bool:
        return True

    def scalars(self, rate: float, count: int) -> Scalars:
        return replace(self, half_life=(None, None)).scalars_at(rate, count, 0, 0)

    def scalars_at(self, rate: float, count: int, samples: int, seen: int) -> Scalars:
        """The rate without the bias of the first average; weight decay; each beta and 1 - beta; the factor that removes
        the bias from the root of the second average; eps. With a half-life an average's bias depends on samples seen:
        the samples of an update may have changed."""
        beta1, beta2 = both_kept(self.betas, self.half_life, samples)
        first, second = both_kept((beta1**count, beta2**count), self.half_life, seen)  # shares of the initial 0
        unbiased = rate / (1 - first)
        root = 1 / math.sqrt(1 - second)
        return unbiased, *self._decays(rate), beta1, 1 - beta1, beta2, 1 - beta2, root, self.eps

    def _decays(self, rate: float) -> tuple[float, float]:
        """`decay` and `shrink` of the formulas."""
        return self.weight_decay, 0.0


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam's step without weight decay, and -lr weight_decay w beside it."""

    weight_decay: Annotated[NotNegative, DECOUPLED] = 0.01
    _: KW_ONLY
    name: Literal["adamw"] = "adamw"  # type: ignore[assignment]

    def _decays(self, rate: float) -> tuple[float, float]:
        return 0.0, rate * self.weight_decay
