"""Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024).

Matrices take an orthogonal step; all other weights, and matrices whose step costs too much, take that of `fallback`.
"""

from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cache
from typing import Annotated, Literal

from mpibow.bounds import Count, NotNegative, Positive
from mpibow.errors import ConfigError
from mpibow.formulas import Apply, Array, Formula, Name, Number, formula
from mpibow.formulas.functions import Element

from .adagrad import Adagrad
from .adam import Adam, AdamW
from .lion import Lion
from .rmsprop import RmsProp
from .sgd import Sgd
from .update import DECOUPLED, Beta, HalfLife, Scalars, Update, kept, shrunk

MOMENTA = "matrix_momenta"


@dataclass(frozen=True)
class Muon(Update):
    """v <- momentum v + g;  d = v, or g + momentum v with nesterov;  u = -lr (scale(d) + weight_decay w) of a matrix.

    length     |d| O / |O|, O being the orthogonal matrix nearest to d: as long as SGD's step
    spectral   max(1, rows / columns)^0.5 O (Jordan et al.; PyTorch's `original`)
    rms        0.2 max(rows, columns)^0.5 O, as long as AdamW's step mostly is (Liu et al., 2025, arXiv:2502.16982;
               PyTorch's `match_rms_adamw`)

    `fallback` has a learning rate of its own, which the schedule multiplies alike.
    """

    lr: Annotated[Positive, "learning rate of matrices; not scaled with the number of learners"] = 0.02
    weight_decay: Annotated[NotNegative, DECOUPLED] = 0.0
    momentum: Annotated[Beta, "momentum of each learner"] = 0.95
    nesterov: Annotated[bool, "Nesterov's momentum"] = True
    half_life: Annotated[HalfLife, "samples after which half of the momentum is left, in place of momentum"] = None
    ns_steps: Annotated[Count, "Newton-Schulz iterations"] = 5
    scale: Annotated[Literal["length", "spectral", "rms"], "length of a matrix's step"] = "spectral"
    largest_share: Annotated[
        Positive,
        "largest cost of a matrix's orthogonal step, as a share of the operations of a batch's forward and backward "
        "passes; a matrix above it takes the fallback",
    ] = 1.0
    fallback: Annotated[
        AdamW | Adam | Sgd | RmsProp | Adagrad | Lion,
        "optimiser of vectors, the first matrix, the last one, embeddings, and matrices above largest_share",
    ] = field(default_factory=AdamW)
    _: KW_ONLY
    name: Literal["muon"] = "muon"

    def __post_init__(self) -> None:
        if not self.fallback.bare:
            raise ConfigError(
                "fallback: has no schedule, warmup, clipping, groups or decay_biases of its own; set them beside it"
            )

    def at(self, samples: int) -> "Muon":
        momentum = kept(self.momentum, self.half_life, samples)
        return replace(self, momentum=momentum, half_life=None, fallback=self.fallback.at(samples))

    @property
    def formula(self) -> Formula:
        return _beside(self.fallback.formula)

    @property
    def counts(self) -> bool:
        return self.fallback.counts

    def scalars(self, rate: float, count: int) -> Scalars:
        """The scalars of a weight that takes the fallback."""
        return *self._own(rate), *self.fallback.scalars(self.fallback.lr * rate / self.lr, count)

    def scalars_at(self, rate: float, count: int, samples: int, seen: int) -> Scalars:
        return *self._own(rate), *self.fallback.scalars_at(self.fallback.lr * rate / self.lr, count, samples, seen)

    def _own(self, rate: float) -> tuple[float, float, float]:
        return 0.0, 0.0, 0.0

    @property
    def penalised(self) -> bool:
        return super().penalised or self.fallback.l1 > 0

    @property
    def penalty(self) -> float:
        return self.fallback.l1

    def scale_of(self, rows: int, columns: int) -> tuple[bool, float]:
        """Whether the length of a matrix's direction is independent of the gradient's, and the direction's factor."""
        if self.scale == "length":
            return False, 1.0
        return True, max(1.0, rows / columns) ** 0.5 if self.scale == "spectral" else 0.2 * max(rows, columns) ** 0.5


@dataclass(frozen=True)
class OnMatrices(Muon):
    """Muon of a matrix, whose scaled direction stands in the place of its gradient."""

    @classmethod
    def of(cls, update: Muon) -> "OnMatrices":
        return cls(**{each.name: getattr(update, each.name) for each in fields(Muon)})

    @property
    def penalty(self) -> float:
        """0: a direction is computed from the gradient with l1 already."""
        return 0.0

    def _own(self, rate: float) -> tuple[float, float, float]:
        return 1.0, rate, rate * self.weight_decay


def of_matrix(w: Array, g: Array, *, matrix_rate: float, matrix_shrink: float) -> Element:
    matrix_step = -matrix_rate * g
    matrix_step = shrunk(matrix_step, w, matrix_shrink)
    return matrix_step


@cache
def _beside(other: Formula) -> Formula:
    """A matrix's step from its direction, or else the other formula's; a matrix's states stay as they are here."""
    matrix = formula(of_matrix)
    w, g, *states = other.arrays
    assert (w, g) == matrix.arrays
    before = (*matrix.assignments, *((f"matrix_{state}", Name(state)) for state in states))
    is_matrix = Apply("!=", (Name("is_matrix"), Number(0.0)))
    results = ("step", *states)
    step, *after = (
        Apply("where", (is_matrix, Name(f"matrix_{name}"), tree))
        for name, tree in zip(results, other.results, strict=True)
    )
    return Formula(
        f"muon_or_{other.name}",
        (w, g, MOMENTA, *states),
        ("is_matrix", *matrix.scalars, *other.scalars),
        (*before, *other.assignments),
        (step, Name(MOMENTA), *after),
    )
