"""The settings of all optimisers, each one's declarations, and the formulas that several of them call."""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Self

from mpibow.bounds import Below, NotNegative, Positive
from mpibow.formulas import Array, Formula, Name, formula
from mpibow.formulas.functions import Element, abs, sign, where
from mpibow.formulas.inlining import renamed

from .groups import WeightGroup, group_of
from .schedules import ConstantRate, Schedule, Warmup

Beta = Annotated[NotNegative, Below(1)]
DECOUPLED = "decoupled weight decay: lr times this factor times the weights is subtracted from them"
FACTOR = "_l1"  # the last scalar of a formula with l1; no other one has such a name
HalfLife = Positive | None
Scalars = tuple[float, ...]  # of a formula, in its order
# What all optimisers of a run share: a fallback has none of its own.
TOGETHER = "schedule", "warmup", "clip_value", "clip_norm", "groups", "decay_biases"


@dataclass(frozen=True)
class Update:
    """An optimiser. Its formula takes a weight, its gradient and one element of each state, and gives the step first.

    The formula depends on settings that hold for all weights only; lr, weight_decay and l1 may differ between groups.
    l1 is no part of it: `step` has that in front.
    """

    name: str = field(kw_only=True)
    lr: Annotated[Positive, "learning rate; not scaled with the number of learners"] = 0.01
    weight_decay: Annotated[NotNegative, "this factor times the weights is added to the gradient"] = 0.0
    l1: Annotated[NotNegative, "this factor times the signs of the weights is added to the gradient"] = 0.0
    decay_biases: Annotated[bool, "apply weight_decay and l1 to biases and the weights of norms too"] = False
    clip_value: Annotated[
        Positive | None, "clip each element of a learner's gradient to at most this size; null: no clipping"
    ] = None
    clip_norm: Annotated[
        Positive | None, "clip the norm of a learner's gradient to this, after clip_value; null: no clipping"
    ] = None
    schedule: Annotated[Schedule, "schedule of the learning rate: a factor by epoch"] = field(
        default_factory=ConstantRate
    )
    warmup: Annotated[Warmup, "linear warm-up of the learning rate"] = field(default_factory=Warmup)
    groups: Annotated[
        tuple[WeightGroup, ...],
        "weights with settings of their own, the first match wins: a list of "
        "{match, freeze, lr_scale, weight_decay, l1, update}",
    ] = ()

    @property
    def bare(self) -> bool:
        """Whether all settings that a run's optimisers share have their defaults."""
        default = Update(name="")
        return all(getattr(self, each) == getattr(default, each) for each in TOGETHER)

    @property
    def optimisers(self) -> list["Update"]:
        """This optimiser and those of groups."""
        return [self, *(group.update for group in self.groups if group.update is not None)]

    def optimiser_of(self, name: str) -> "Update":
        """The optimiser of the weight of that name."""
        own = group_of(self.groups, name)
        return self if own is None or own.update is None else replace(own.update, groups=self.groups)

    @property
    def formula(self) -> Formula:
        raise NotImplementedError

    @property
    def penalised(self) -> bool:
        """Whether any weights may have l1."""
        return self.l1 > 0 or any(group.l1 for group in self.groups)

    @property
    def step(self) -> Formula:
        """The formula of every weight, of a gradient with l1 where any weights have it."""
        return with_l1(self.formula) if self.penalised else self.formula

    @property
    def penalty(self) -> float:
        """The last scalar of `step` where that has l1."""
        return self.l1

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the arrays that a replica keeps beside its weights. They begin as 0."""
        return self.formula.arrays[2:]

    def at(self, samples: int) -> Self:
        """The same optimiser for updates of so many samples: half-lives become the share that an update keeps."""
        return self

    @property
    def counts(self) -> bool:
        """Whether scalars depend on how many updates a replica's states have had."""
        return False

    def scalars(self, rate: float, count: int) -> Scalars:
        """The formula's scalars at learning rate `rate`; the states' updates are `count`, this one among them."""
        raise NotImplementedError

    def scalars_at(self, rate: float, count: int, samples: int, seen: int) -> Scalars:
        """The same of an update that takes so many samples; the states' updates took `seen`, this one's among them."""
        return self.at(samples).scalars(rate, count)


Betas = tuple[Beta, Beta]
HalfLives = tuple[HalfLife, HalfLife]


def kept(beta: float, half_life: HalfLife, samples: int) -> float:
    """The share of an average that an update of so many samples keeps: half after `half_life` samples, else `beta`.

    0.5 ** (samples / half_life) holds when batches grow (Marek et al., 2025, arXiv:2507.07101, section 3).
    """
    return beta if half_life is None else 0.5 ** min(samples / half_life, 1000.0)  # above 0


def both_kept(betas: Betas, half_lives: HalfLives, samples: int) -> Betas:
    first, second = betas
    first_half, second_half = half_lives
    return kept(first, first_half, samples), kept(second, second_half, samples)


@dataclass(frozen=True)
class TwoAverages(Update):
    """An optimiser with a decay rate for each of two averages, or a half-life in its place."""

    betas: Annotated[Betas, "decay rates of the averages of gradients and of their squares"] = (0.9, 0.999)
    half_life: Annotated[HalfLives, "samples after which half is left, in place of a beta"] = (None, None)

    def at(self, samples: int) -> Self:
        if self.half_life == (None, None):
            return self
        return replace(self, betas=both_kept(self.betas, self.half_life, samples), half_life=(None, None))


def penalised(w: Array, g: Array, *, l1: float) -> Element:
    """The gradient, with a factor times the signs of the weights."""
    return where(l1 != 0, g + l1 * sign(w), g)


@cache
def with_l1(step: Formula) -> Formula:
    """The formula behind `penalised`."""
    w, g = step.arrays[:2]
    (tree,) = formula(penalised).results
    tree = renamed(tree, {"w": Name(w), "g": Name(g), "l1": Name(FACTOR)})
    return replace(
        step, name=f"{step.name}_l1", scalars=(*step.scalars, FACTOR), assignments=((g, tree), *step.assignments)
    )


# A dead unit's averages decay into denormals and stay there: 2 to 3 times the time, seen on Zen 4. So formulas make an
# average that is smaller 0; squares are averaged down to SMALL.
TINY = 1e-30
SMALL = 1e-36


def decayed(g: Element, w: Element, decay: Element) -> Element:
    """The gradient, weight decay being a part of it."""
    return where(decay != 0, g + decay * w, g)


def shrunk(u: Element, w: Element, shrink: Element) -> Element:
    """The step, weight decay standing beside the gradient."""
    return where(shrink != 0, u - shrink * w, u)


def flushed(average: Element) -> Element:
    return where(abs(average) < TINY, 0, average)


def averaged(average: Element, g: Element, kept: Element, rest: Element) -> Element:
    """An average of gradients with one more."""
    average = kept * average + rest * g
    return flushed(average)


def averaged_square(average: Element, g: Element, kept: Element, rest: Element) -> Element:
    """An average of squared gradients with one more."""
    average = kept * average + rest * (g * g)
    return where(average < SMALL, 0, average)
