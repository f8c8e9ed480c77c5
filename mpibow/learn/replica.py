"""The replicas of one rank: rows of equal stride in one block, so that one pass can walk them all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mpibow.graph import Array
from mpibow.kernels import WHOLE, StepArrays
from mpibow.kernels.numpy import arrays
from mpibow.kernels.passes import FlatArrays

Ranges = Sequence[tuple[int, int]]  # elements [start, stop)


@dataclass(frozen=True)
class PartStates:
    """The local step's `states` of elements [start, stop) of a replica, by name.

    `counts`: the step depends on the number of updates that these have had.
    """

    start: int
    stop: int
    states: tuple[str, ...] = ()
    counts: bool = False


class Replicas:
    """Weights, states and gradients (capacity, size) of a rank's learners; the first `count` rows are in use.

    Each part has its own states, number of `updates`, and samples of these updates (`seen`): a formula may correct for
    states that began as 0. Elements [0, size) are trained; those behind them are frozen, the same in every row, and no
    pass reads them.

    Statistics (capacity, its own size) are arrays that operators keep beside weights, as batch norm's running means.
    Rows are taken from zeroed pages that the system gives out on first touch: a learner that never runs costs nothing,
    and a row's address never changes, so plans stay bound when learners come and go.

    Where they are `one`, all rows of weights and states are the same memory: a block of one row.
    """

    def __init__(
        self,
        capacity: int,
        size: int,
        dtype: str,
        statistics: Array | None = None,
        factors: Array = WHOLE,
        flat: FlatArrays = arrays,
        states: Sequence[str] = (),
        counts: bool = False,
        counted: bool = False,
        parts: Sequence[PartStates] = (),
        trained: int | None = None,
        one: bool = False,
    ):
        """Every replica's statistics start from `statistics` (its size,). `factors` are the gradients kept as factors;
        `flat` has the passes over them. `states` names the local step's states of all weights, and `counts` is whether
        it depends on `updates`, unless `parts` declare them for each. `counted`: batches may count differently in a
        mean. The first `trained` elements are trained. `one`: all learners share one copy of weights and states, of
        arrays on the host.
        """
        self.capacity = capacity
        self.count = 0
        self.one = one
        self._flat = flat
        self.first_statistics = np.zeros(0, dtype) if statistics is None else statistics
        self._statistics = flat.zeros((capacity, self.first_statistics.size), dtype)
        self._weights = self._block(size, dtype)
        self.parts = tuple(parts) or (PartStates(0, size, tuple(states), counts),)
        self._states: list[dict[str, Array]] = [
            {name: self._block(part.stop - part.start, dtype) for name in part.states} for part in self.parts
        ]
        self.all_gradients = flat.zeros((capacity, size), dtype)  # of all rows, in use or not
        self._updates, self._seen = np.zeros((2, capacity, len(self.parts)), np.int64)
        self._last = 0  # samples of the last update
        self._shares = np.ones(capacity) if counted else None
        self.weighed = False  # whether gradients are averaged, so that learners multiply theirs by their shares
        self._whole = np.zeros(0, dtype)
        self._trained: StepArrays | None = None  # as `trained` was made
        self._factors = factors
        self.train(size if trained is None else trained)

    def _block(self, size: int, dtype: str) -> Array:
        """(capacity, size)"""
        shape = (self.capacity, size)
        rows = self._flat.zeros(size if self.one else shape, dtype)
        return as_strided(rows, shape, (0, rows.itemsize)) if self.one else rows

    def train(self, size: int) -> None:
        """Elements [0, size) are trained from here on; a part ends there."""
        self.size = size
        self._trained = None
        self.factors = self._factors[self._factors[:, 0] < size]

    @property
    def active(self) -> range:
        """The numbers of the parts that are trained."""
        return range(sum(part.stop <= self.size for part in self.parts))

    @property
    def weights(self) -> Array:
        """(count, size)"""
        return self._weights[: self.count, : self.size]

    @property
    def trained(self) -> StepArrays:
        """The arrays of a local step: where replicas are `one`, a row of weights and of states, and every learner's
        gradients."""
        if self._trained is None or len(self._trained.gradients) != self.count:
            rows = 1 if self.one else self.count
            states = tuple(state[:rows] for *_, state in self._placed())
            self._trained = StepArrays(self.weights[:rows], states, self.gradients, self.factors)
        return self._trained

    def _placed(self) -> Iterator[tuple[str, PartStates, Array]]:
        """The states of all parts that are trained, in order, with their names and parts."""
        for p in self.active:
            for name, state in self._states[p].items():
                yield name, self.parts[p], state[: self.count]

    def forget(self) -> None:
        """Every learner's states are 0."""
        for *_, state in self._placed():
            self._flat.put(state, 0)
        self.updates[:] = self.seen[:] = 0

    def level(self) -> None:
        """Every learner has the first one's states."""
        for *_, state in self._placed():
            self._flat.put(state[1:], state[0])
        self.updates[1:] = self.updates[0]
        self.seen[1:] = self.seen[0]

    @property
    def counts(self) -> bool:
        """Whether a local step depends on `updates`."""
        return any(part.counts for part in self.parts)

    @property
    def updates(self) -> Array:
        """(count, parts) int64: local steps since a replica's states were 0."""
        return self._updates[: self.count]

    @property
    def seen(self) -> Array:
        """(count, parts) int64: the samples of those steps."""
        return self._seen[: self.count]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the local step's states of any weights."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.states))

    @property
    def states(self) -> dict[str, Array]:
        """The local step's states of the first part, by name."""
        return {name: state[: self.count] for name, state in self._states[0].items()}

    def state(self, name: str) -> Array:
        """(count, whole size), on the host: 0 where it is not kept."""
        if len(self.parts) == 1 and self.parts[0].stop == self._weights.shape[1]:
            return self._flat.host(self.states[name])
        found = np.zeros((self.count, self._weights.shape[1]), self.first_statistics.dtype)
        for own, part, state in self._placed():
            if own == name:
                found[:, part.start : part.stop] = self._flat.host(state)
        return found

    def put_state(self, name: str, rows: Array | int) -> None:
        """Restores the return value of `state`, or 0."""
        for own, part, state in self._placed():
            if own == name:
                given = rows if isinstance(rows, int) else np.ascontiguousarray(rows[:, part.start : part.stop])
                self._flat.put(state, given)

    @property
    def shares(self) -> Array | None:
        """(count,) float64: each learner's count in its last batch, over the batch size; None where all are 1."""
        return self._shares[: self.count] if self.weighed and self._shares is not None else None

    def note_share(self, i: int, share: float) -> float:
        """Sets learner i's element of `shares`; returns the factor of its gradient."""
        if self._shares is not None:
            self._shares[i] = share
        return share if self.weighed else 1.0

    @property
    def gradients(self) -> Array:
        """(count, size)"""
        return self.all_gradients[: self.count, : self.size]

    @property
    def statistics(self) -> Array:
        return self._statistics[: self.count]

    def row(self, i: int) -> tuple[Array, Array, Array]:
        """The weights, gradients and statistics that learner i's plan is bound to, whole."""
        return self._weights[i], self.all_gradients[i], self._statistics[i]

    def whole(self, centre: Array) -> Array:
        """The centre (size,) with the frozen weights behind it."""
        if self.size == self._weights.shape[1]:
            return centre
        if not self._whole.size:
            self._whole = self._flat.zeros(self._weights.shape[1], self.first_statistics.dtype.name)
        self._flat.put(self._whole[: self.size], centre)
        self._flat.put(self._whole[self.size :], self._weights[0, self.size :])
        return self._whole

    def resize(self, count: int, statistics: Array | None = None) -> None:
        """Keeps the first `count` replicas; new ones have states 0, `statistics`, and weights that a restart sets, but
        for the frozen ones."""
        assert 1 <= count <= self.capacity
        before = self.count
        self.count = max(count, self.count)
        for *_, state in self._placed():
            if not (self.one and before):
                self._flat.put(state[before:count], 0)
        self._updates[before:count] = self._seen[before:count] = 0
        self._flat.put(self._statistics[before:count], self.first_statistics if statistics is None else statistics)
        for i in range(max(before, 1), count):
            self.freeze(i, self._weights[0, self.size :])
        self.count = count

    def freeze(self, i: int, weights: Array) -> None:
        """Learner i's frozen weights become these."""
        if self.size < self._weights.shape[1]:
            self._flat.put(self._weights[i, self.size :], weights)

    def reseed(self, i: int, centre: Array, only: Ranges = ()) -> None:
        """Learner i starts again from the centre: states of 0, the first statistics, nothing learnt this iteration.

        With `only`, in these elements [start, stop).
        """
        for start, stop in only or ((0, self.size),):
            self._flat.put(self.weights[i, start:stop], centre[start:stop])
            for _, part, state in self._placed():
                self._flat.put(state[i, max(start - part.start, 0) : max(stop - part.start, 0)], 0)
        if not only:
            self._updates[i] = self._seen[i] = 0
        self.leave_out(i, only)

    def stepped(self, samples: int) -> None:
        """Every learner has made a local step, of so many samples."""
        now = self.active.stop
        self.updates[:, :now] += 1
        self.seen[:, :now] += samples
        self._last = samples

    def stood_still(self, i: int) -> None:
        """Learner i's last local step was left out: its states have not had it."""
        now = self.active.stop
        self._updates[i, :now] -= 1
        self._seen[i, :now] -= self._last

    def leave_out(self, i: int, only: Ranges = ()) -> None:
        """Learner i has learnt nothing this iteration, in `only` these elements where some are given; its statistics,
        which may be spoilt, are the first ones."""
        for start, stop in only or ((0, self.size),):
            self._flat.put(self.gradients[i, start:stop], 0)
        self._flat.put(self._statistics[i], self.first_statistics)

    def all_rows(self, count: int) -> tuple[Array, Array, Array]:
        """The weights, gradients and statistics of the first `count`, whole."""
        return self._weights[:count], self.all_gradients[:count], self._statistics[:count]
