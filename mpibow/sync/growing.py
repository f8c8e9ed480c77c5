"""A rule whose weights become more: that of the elements which are trained now, made anew where others join them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from mpibow.graph.graph import Array
from mpibow.sync.outbox import TAIL
from mpibow.sync.rule import Rule, RuleState, Stored


class Growing:
    """Holds the current rule. `make` makes the rule of a centre (size,), which it takes over."""

    def __init__(self, make: Callable[[Array], Rule], rule: Rule) -> None:
        self._make, self._now = make, rule

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now, name)

    def grow(self, centre: Array, size: int, k: int, host: Callable[[Any], Array]) -> None:
        """Elements [0, size) are averaged from here on, by k learners; the whole `centre` is on the host.

        Averaging goes on, after `settle`: all that the rule keeps of other weights stays.
        """
        state, arrays = self._now.state(), self._now.arrays
        shared, own = (
            {key: narrower(wider(host(array), arrays[key], centre), arrays[key], size) for key, array in each.items()}
            for each in (state.shared, state.own)
        )
        self._now = self._make(centre[:size].copy())
        self._now.begin(k, keep=True)
        self._now.load(centre[:size], RuleState(shared, own, state.numbers))


def growing(make: Callable[[Array], Rule], centre: Array) -> Rule:
    return cast(Rule, Growing(make, make(centre)))


def wider(array: Array, stored: Stored, centre: Array) -> Array:
    """A rule's array of trained weights with those of the whole `centre` behind them; 0 of what is sent."""
    if stored.form == "weights":
        return np.concatenate([array, centre[array.size :]]) if array.size < centre.size else array
    if stored.form == "steps":
        return np.concatenate([array, np.zeros(centre.size - array.size, array.dtype)])
    if stored.form == "sent" and array.size < centre.size + TAIL:
        return np.concatenate([array[:-TAIL], np.zeros(centre.size + TAIL - array.size, array.dtype), array[-TAIL:]])
    return array


def narrower(array: Array, stored: Stored, size: int) -> Array:
    """The inverse of `wider`: the array of the first `size` weights."""
    if stored.form in ("weights", "steps"):
        return array[:size]
    return np.concatenate([array[:size], array[-TAIL:]]) if stored.form == "sent" else array
