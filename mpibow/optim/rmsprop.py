"""RMSprop (Tieleman and Hinton, 2012; centred: Graves, 2013, arXiv:1308.0850), as PyTorch writes it."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Literal, Self

from mpibow.bounds import NotNegative
from mpibow.formulas import Array, Arrays, Formula, formula
from mpibow.formulas.functions import maximum, sqrt

from .update import Beta, HalfLife, Scalars, Update, averaged, averaged_square, decayed, flushed, kept


def plain(
    w: Array, g: Array, square_avg: Array, *, rate: float, decay: float, alpha: float, rest: float, eps: float
) -> Arrays:
    g = decayed(g, w, decay)
    square_avg = averaged_square(square_avg, g, alpha, rest)
    return -rate * g / (sqrt(square_avg) + eps), square_avg


def centred(
    w: Array,
    g: Array,
    square_avg: Array,
    grad_avg: Array,
    *,
    rate: float,
    decay: float,
    alpha: float,
    rest: float,
    eps: float,
) -> Arrays:
    g = decayed(g, w, decay)
    square_avg = averaged_square(square_avg, g, alpha, rest)
    grad_avg = averaged(grad_avg, g, alpha, rest)
    return -rate * g / (sqrt(maximum(square_avg - grad_avg * grad_avg, 0)) + eps), square_avg, grad_avg


def with_momentum(
    w: Array,
    g: Array,
    square_avg: Array,
    momentum_buffer: Array,
    *,
    rate: float,
    decay: float,
    alpha: float,
    rest: float,
    eps: float,
    momentum: float,
) -> Arrays:
    step, square_avg = plain(w, g, square_avg, rate=1, decay=decay, alpha=alpha, rest=rest, eps=eps)
    momentum_buffer = flushed(momentum * momentum_buffer - step)
    return -rate * momentum_buffer, square_avg, momentum_buffer


def centred_with_momentum(
    w: Array,
    g: Array,
    square_avg: Array,
    grad_avg: Array,
    momentum_buffer: Array,
    *,
    rate: float,
    decay: float,
    alpha: float,
    rest: float,
    eps: float,
    momentum: float,
) -> Arrays:
    step, square_avg, grad_avg = centred(
        w, g, square_avg, grad_avg, rate=1, decay=decay, alpha=alpha, rest=rest, eps=eps
    )
    momentum_buffer = flushed(momentum * momentum_buffer - step)
    return -rate * momentum_buffer, square_avg, grad_avg, momentum_buffer


FORMULAS = {
    (False, False): plain,
    (True, False): centred,
    (False, True): with_momentum,
    (True, True): centred_with_momentum,
}


@dataclass(frozen=True)
class RmsProp(Update):
    """s <- alpha s + (1 - alpha) g^2;  u = -lr g / (sqrt(s) + eps), or -lr times the momentum of g / (sqrt(s) + eps).

    Centred, the square of the average gradient is taken from s first.
    """

    alpha: Annotated[Beta, "decay rate of the average of squared gradients"] = 0.99
    eps: Annotated[NotNegative, "added to the root of the average of squared gradients"] = 1e-8
    momentum: Annotated[Beta, "momentum of each learner"] = 0.0
    centered: Annotated[bool, "divide by the standard deviation of gradients, not by the root of their mean square"] = (
        False
    )
    half_life: Annotated[HalfLife, "samples after which half of the average is left, in place of alpha"] = None
    _: KW_ONLY
    name: Literal["rmsprop"] = "rmsprop"

    def at(self, samples: int) -> Self:
        if self.half_life is None:
            return self
        return replace(self, alpha=kept(self.alpha, self.half_life, samples), half_life=None)

    @property
    def formula(self) -> Formula:
        return formula(FORMULAS[self.centered, self.momentum > 0])

    def scalars(self, rate: float, count: int) -> Scalars:
        scalars = rate, self.weight_decay, self.alpha, 1 - self.alpha, self.eps
        return (*scalars, self.momentum) if self.momentum else scalars
