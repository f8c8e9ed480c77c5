"""An optimiser's run on a small problem by its formula, as a learner makes it."""

from dataclasses import replace

import numpy as np

from mpibow.formulas import Array
from mpibow.optim import Muon, Update
from tests.formulas import machines
from tests.formulas.machines import Machine

STEPS, SIZE = 50, 40


def start() -> Array:
    return np.random.default_rng(1).standard_normal(SIZE)


def gradient(w: Array) -> Array:
    """Of a valley whose walls are a thousand times steeper than its floor, and noise that depends on w alone."""
    steep = np.logspace(-1.5, 1.5, SIZE)
    slope = steep * w + 0.3 * np.sin(5 * w)
    return slope


def rate_of(update: Update, iteration: int) -> float:
    """A schedule."""
    return update.lr * (1 + iteration % 7) / 7


def scalars_of(update: Update, rate: float, count: int) -> tuple[float, ...]:
    """Those of `update.step`."""
    return (*update.scalars(rate, count), *[update.penalty] * update.penalised)


def trained(update: Update, dtype: str = "float64", machine: Machine = machines.numpy, steps: int = STEPS) -> Array:
    """The weights; a second half that neither decays nor has l1, as those of another group."""
    w = start().astype(dtype)
    other = _without(update)
    parts = [(slice(SIZE // 2), update), (slice(SIZE // 2, SIZE), other)]
    states = [[np.zeros(SIZE // 2, dtype) for _ in update.states] for _ in parts]
    for iteration in range(steps):
        g = gradient(w.astype("float64")).astype(dtype)
        for (part, own), kept in zip(parts, states, strict=True):
            scalars = own.scalars(rate_of(update, iteration), iteration + 1)
            scalars = (*scalars, *[own.penalty] * update.penalised)
            w[part] += machine(update.step, w[part].copy(), g[part].copy(), kept, scalars)
    return w


def _without(update: Update) -> Update:
    if isinstance(update, Muon):
        update = replace(update, fallback=replace(update.fallback, weight_decay=0.0, l1=0.0))
    return replace(update, weight_decay=0.0, l1=0.0)
