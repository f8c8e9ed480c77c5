"""Stochastic gradient descent with momentum (Sutskever et al., ICML 2013, as PyTorch writes it)."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Literal, Self

from mpibow.errors import ConfigError
from mpibow.formulas import Array, Formula, formula

from .update import Beta, HalfLife, Scalars, Update, decayed, flushed, kept


def plain(w: Array, g: Array, *, rate: float, decay: float) -> Array:
    g = decayed(g, w, decay)
    return -rate * g


def heavy_ball(
    w: Array, g: Array, momenta: Array, *, rate: float, decay: float, momentum: float
) -> tuple[Array, Array]:
    g = decayed(g, w, decay)
    momenta = momentum * momenta + g
    momenta = flushed(momenta)
    return -rate * momenta, momenta


def nesterov(w: Array, g: Array, momenta: Array, *, rate: float, decay: float, momentum: float) -> tuple[Array, Array]:
    g = decayed(g, w, decay)
    momenta = momentum * momenta + g
    momenta = flushed(momenta)
    return -rate * (g + momentum * momenta), momenta


@dataclass(frozen=True)
class Sgd(Update):
    """v <- momentum v + g + weight_decay w;  u = -lr v, or -lr (g + weight_decay w + momentum v) with nesterov."""

    momentum: Annotated[Beta, "momentum of each learner"] = 0.0
    nesterov: Annotated[bool, "Nesterov's momentum; needs momentum above 0"] = False

    half_life: Annotated[HalfLife, "samples after which half of the momentum is left, in place of momentum"] = None
    _: KW_ONLY
    name: Literal["sgd"] = "sgd"

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0 and self.half_life is None:
            raise ConfigError("nesterov: needs momentum above 0, got momentum 0")

    def at(self, samples: int) -> Self:
        if self.half_life is None:
            return self
        return replace(self, momentum=kept(self.momentum, self.half_life, samples), half_life=None)

    @property
    def formula(self) -> Formula:
        return formula(nesterov if self.nesterov else heavy_ball if self.momentum or self.half_life else plain)

    def scalars(self, rate: float, count: int) -> Scalars:
        return (rate, self.weight_decay, self.momentum) if self.momentum else (rate, self.weight_decay)
