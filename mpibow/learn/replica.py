"""The replicas of one rank: rows of equal stride in one block, so that one pass can walk them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.numpy import arrays
from mpibow.kernels.passes import WHOLE, States


class Replicas:
    """Weights, states and gradients (capacity, size) of a rank's learners; the first `count` rows are in use.

    `states` are what the local step keeps of every replica, by name, `updates` how many steps these have had, and
    `seen` how many samples those took: a formula may correct for states that began as 0.

    Statistics (capacity, its own size) are what operators keep beside weights, as batch norm's running means.
    Rows are taken from zeroed pages that the system gives out on first touch: a learner that never runs costs nothing,
    and a row's address never changes, so plans stay bound when learners come and go.
    """

    def __init__(
        self, capacity: int, size: int, dtype: str, statistics: Array | None = None, factors: Array = WHOLE,
        flat: Any = arrays, states: Sequence[str] = (), counts: bool = False, counted: bool = False,
    ) -> None:  # fmt: skip
        """`statistics` (its size,) is what every replica's start from; `factors` which gradients are kept as such;
        `flat` are the passes over them; `states` names what the local step keeps,
        and `counts` says whether it depends on `updates`; `counted` whether batches may count differently in a mean."""
        self.capacity, self.count, self.factors, self._flat = capacity, 0, factors, flat
        self._first = np.zeros(0, dtype) if statistics is None else statistics
        self._statistics: Array = flat.zeros((capacity, self._first.size), dtype)
        self._weights: Array = flat.zeros((capacity, size), dtype)
        self._states: dict[str, Array] = {name: flat.zeros((capacity, size), dtype) for name in states}
        self._gradients: Array = flat.zeros((capacity, size), dtype)
        self._updates, self._seen, self.counts = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), counts
        self._last = 0  # samples of the last update
        self._shares = np.ones(capacity) if counted else None
        self._weighed = False

    @property
    def weights(self) -> Array:
        return self._weights[: self.count]

    @property
    def trained(self) -> tuple[Array, States, Array]:
        """Weights, states and gradients: what a pass over flat arrays takes."""
        return self.weights, tuple(self.states.values()), self.gradients

    def forget(self) -> None:
        """Every learner's states are 0."""
        for state in self.states.values():
            self._flat.put(state, 0)
        self.updates[:] = self.seen[:] = 0

    def level(self) -> None:
        """Every learner has the first one's states."""
        for state in self.states.values():
            self._flat.put(state[1:], state[0])
        self.updates[1:], self.seen[1:] = self.updates[0], self.seen[0]

    @property
    def updates(self) -> Array:
        """(count,) int64: local steps since a replica's states were 0."""
        return self._updates[: self.count]

    @property
    def seen(self) -> Array:
        """(count,) int64: the samples of those steps."""
        return self._seen[: self.count]

    @property
    def states(self) -> dict[str, Array]:
        """What the local step keeps, by name."""
        return {name: state[: self.count] for name, state in self._states.items()}

    def weigh(self) -> None:
        """Gradients are to be averaged: a learner that is bound from now on multiplies its own by its share."""
        self._weighed = True

    @property
    def shares(self) -> Array | None:
        """(count,) float64: each learner's count in its last batch, over the batch size; None where all are 1."""
        return self._shares[: self.count] if self._weighed and self._shares is not None else None

    def share(self, i: int) -> Array | None:
        """(1,), learner i's of `shares`."""
        return self._shares[i : i + 1] if self._weighed and self._shares is not None else None

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
        """Keeps the first `count` replicas; new ones have states 0, `statistics`, and weights that a restart sets."""
        assert 1 <= count <= self.capacity
        for state in self._states.values():
            self._flat.put(state[self.count : count], 0)
        self._updates[self.count : count] = self._seen[self.count : count] = 0
        self._flat.put(self._statistics[self.count : count], self._first if statistics is None else statistics)
        self.count = count

    def reseed(self, i: int, centre: Array) -> None:
        """Learner i starts again from the centre: states of 0, the first statistics, nothing learnt this iteration."""
        self._flat.put(self._weights[i], centre)
        for state in self._states.values():
            self._flat.put(state[i], 0)
        self._updates[i] = self._seen[i] = 0
        self.leave_out(i)

    def stepped(self, samples: int) -> None:
        """Every learner has made a local step, of so many samples."""
        self.updates[:] += 1
        self.seen[:] += samples
        self._last = samples

    def stood_still(self, i: int) -> None:
        """Learner i's last local step was left out: its states have not had it."""
        self._updates[i] -= 1
        self._seen[i] -= self._last

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
