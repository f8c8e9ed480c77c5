"""Lion (Chen et al., NeurIPS 2023, arXiv:2302.06675, algorithm 2)."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from mpibow.bounds import NotNegative, Positive
from mpibow.formulas import Array, Formula, formula
from mpibow.formulas.functions import sign

from .update import DECOUPLED, Betas, Scalars, TwoAverages, averaged, shrunk


def lion(
    w: Array,
    g: Array,
    exp_avg: Array,
    *,
    rate: float,
    shrink: float,
    beta1: float,
    rest1: float,
    beta2: float,
    rest2: float,
) -> tuple[Array, Array]:
    u = -rate * sign(beta1 * exp_avg + rest1 * g)
    return shrunk(u, w, shrink), averaged(exp_avg, g, beta2, rest2)


@dataclass(frozen=True)
class Lion(TwoAverages):
    """u = -lr (sign(beta1 m + (1 - beta1) g) + weight_decay w);  m <- beta2 m + (1 - beta2) g."""

    lr: Annotated[Positive, "learning rate; not scaled with the number of learners"] = 1e-4
    weight_decay: Annotated[NotNegative, DECOUPLED] = 0.0
    betas: Annotated[Betas, "decay rates of the average of gradients: in the step, and in the average"] = (0.9, 0.99)
    _: KW_ONLY
    name: Literal["lion"] = "lion"

    @property
    def formula(self) -> Formula:
        return formula(lion)

    def scalars(self, rate: float, count: int) -> Scalars:
        beta1, beta2 = self.betas
        return rate, rate * self.weight_decay, beta1, 1 - beta1, beta2, 1 - beta2
