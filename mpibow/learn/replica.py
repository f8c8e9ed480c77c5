"""The replicas of one rank: rows of equal stride in one block, so that one pass can walk them all."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.numpy import arrays
from mpibow.kernels.passes import WHOLE


class Replicas:
    """Weights, momenta and gradients (capacity, size) of a rank's learners; the first `count` rows are in use.

    Statistics (capacity, its own size) are what operators keep beside weights, as batch norm's running means.
    Rows are taken from zeroed pages that the system gives out on first touch: a learner that never runs costs nothing,
    and a row's address never changes, so plans stay bound when learners come and go.
    """

    def __init__(
        self, capacity: int, size: int, dtype: str, statistics: Array | None = None, factors: Array = WHOLE,
        flat: Any = arrays,
    ) -> None:  # fmt: skip
        """`statistics` (its size,) is what every replica's start from; `factors` which gradients are kept as such;
        `flat` are the passes over them."""
        self.capacity, self.count, self.factors, self._flat = capacity, 0, factors, flat
        self._first = np.zeros(0, dtype) if statistics is None else statistics
        self._statistics: Array = flat.zeros((capacity, self._first.size), dtype)
        self._weights: Array = flat.zeros((capacity, size), dtype)
        self._momenta: Array = flat.zeros((capacity, size), dtype)
        self._gradients: Array = flat.zeros((capacity, size), dtype)

    @property
    def weights(self) -> Array:
        return self._weights[: self.count]

    @property
    def trained(self) -> tuple[Array, Array, Array]:
        """Weights, momenta and gradients: what a pass over flat arrays takes."""
        return self.weights, self.momenta, self.gradients

    def forget(self) -> None:
        """Every learner's momentum is 0."""
        self._flat.put(self.momenta, 0)

    def level(self) -> None:
        """Every learner has the first one's momentum."""
        self._flat.put(self.momenta[1:], self.momenta[0])

    @property
    def momenta(self) -> Array:
        return self._momenta[: self.count]

    @property
    def gradients(self) -> Array:
        return self._gradients[: self.count]

    @property
    def statistics(self) -> Array:
        return self._statistics[: self.count]

    def row(self, i: int) -> tuple[Array, Array, Array]:
        """The weights, gradients and statistics that learner i's plan is bound to."""
        return self._weights[i], self._gradients[i], self._statistics[i]

    def resize(self, count: int, statistics: Array | None = None) -> None:
        """Keeps the first `count` replicas; new ones have momentum 0, `statistics`, and weights that a restart sets."""
        assert 1 <= count <= self.capacity
        self._flat.put(self._momenta[self.count : count], 0)
        self._flat.put(self._statistics[self.count : count], self._first if statistics is None else statistics)
        self.count = count

    def reseed(self, i: int, centre: Array) -> None:
        """Learner i starts again from the centre: momentum 0, the first statistics, nothing learnt this iteration."""
        self._flat.put(self._weights[i], centre)
        self._flat.put(self._momenta[i], 0)
        self.leave_out(i)

    def leave_out(self, i: int) -> None:
        """Learner i has learnt nothing this iteration; its statistics, which may be spoilt, are the first ones."""
        self._flat.put(self._gradients[i], 0)
        self._flat.put(self._statistics[i], self._first)

    @property
    def first_statistics(self) -> Array:
        return self._first

    @property
    def all_gradients(self) -> Array:
        """Of all that there is room for."""
        return self._gradients

    def all_rows(self, count: int) -> tuple[Array, Array, Array]:
        """The weights, gradients and statistics of the first `count`."""
        return self._weights[:count], self._gradients[:count], self._statistics[:count]
