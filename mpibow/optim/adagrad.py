"""Adagrad (Duchi et al., JMLR 12, 2011), as PyTorch writes it."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from mpibow.bounds import NotNegative
from mpibow.formulas import Array, Formula, formula
from mpibow.formulas.functions import sqrt

from .update import Scalars, Update, decayed


def adagrad(
    w: Array, g: Array, sum: Array, *, rate: float, decay: float, initial: float, eps: float
) -> tuple[Array, Array]:
    g = decayed(g, w, decay)
    sum = sum + g * g
    return -rate * g / (sqrt(sum + initial) + eps), sum


@dataclass(frozen=True)
class Adagrad(Update):
    """s <- s + g^2;  u = -lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps), t being how many updates s has had."""

    lr_decay: Annotated[NotNegative, "decay of the learning rate per update"] = 0.0
    initial_accumulator_value: Annotated[NotNegative, "first value of the sum of squares"] = 0.0
    eps: Annotated[NotNegative, "added to the root of the sum of squares"] = 1e-10
    _: KW_ONLY
    name: Literal["adagrad"] = "adagrad"

    @property
    def formula(self) -> Formula:
        return formula(adagrad)

    @property
    def counts(self) -> bool:
        return self.lr_decay > 0

    def scalars(self, rate: float, count: int) -> Scalars:
        return rate / (1 + (count - 1) * self.lr_decay), self.weight_decay, self.initial_accumulator_value, self.eps
