"""An optimiser's run on a small problem by its formula, as a learner makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mpibow.formulas.formula import Array
from mpibow.optim.update import Update
from tests.formulas import machines
from tests.formulas.machines import Machine

STEPS, SIZE = 50, 40
Gradient = Callable[[Array], Array]


def start() -> Array:
    return np.random.default_rng(1).standard_normal(SIZE)


def gradient(w: Array) -> Array:
    """Of a valley whose walls are a thousand times steeper than its floor, and noise that depends on w alone."""
    steep = np.logspace(-1.5, 1.5, SIZE)
    slope: Array = steep * w + 0.3 * np.sin(5 * w)
    return slope


def rate_of(update: Update, iteration: int) -> float:
    """A schedule."""
    return update.lr * (1 + iteration % 7) / 7


def trained(update: Update, dtype: str = "float64", machine: Machine = machines.numpy, steps: int = STEPS) -> Array:
    """The weights; a second half whose weights do not decay, as those of another group."""
    w = start().astype(dtype)
    parts = [(slice(SIZE // 2), update), (slice(SIZE // 2, SIZE), replace(update, weight_decay=0.0))]
    states = [[np.zeros(SIZE // 2, dtype) for _ in update.states] for _ in parts]
    for iteration in range(steps):
        g = gradient(w.astype("float64")).astype(dtype)
        for (part, own), kept in zip(parts, states, strict=True):
            scalars = own.scalars(rate_of(update, iteration), iteration + 1)
            w[part] += machine(own.formula, w[part].copy(), g[part].copy(), kept, scalars)
    return w
