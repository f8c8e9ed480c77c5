"""The replicas of one rank: rows of equal stride in one block, so that one pass can walk them all."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import Array


class Replicas:
    """Weights, momenta and gradients (capacity, size) of a rank's learners; the first `count` rows are in use.

    Rows are taken from zeroed pages that the system gives out on first touch: a learner that never runs costs nothing,
    and a row's address never changes, so plans stay bound when learners come and go.
    """

    def __init__(self, capacity: int, size: int, dtype: str) -> None:
        self.capacity, self.count = capacity, 0
        self._weights, self._momenta, self._gradients = (np.zeros((capacity, size), dtype) for _ in range(3))

    @property
    def weights(self) -> Array:
        return self._weights[: self.count]

    @property
    def momenta(self) -> Array:
        return self._momenta[: self.count]

    @property
    def gradients(self) -> Array:
        return self._gradients[: self.count]

    def row(self, i: int) -> tuple[Array, Array]:
        """The weights and gradients (size,) that learner i's plan is bound to."""
        return self._weights[i], self._gradients[i]

    def resize(self, count: int) -> None:
        """Keeps the first `count` replicas; new ones have momentum 0 and weights that a restart will set."""
        assert 1 <= count <= self.capacity
        self._momenta[self.count : count] = 0
        self.count = count

    def reseed(self, i: int, centre: Array) -> None:
        """Learner i starts again from the centre: momentum 0, and nothing learnt this iteration."""
        np.copyto(self._weights[i], centre)
        self._momenta[i] = 0
        self._gradients[i] = 0
