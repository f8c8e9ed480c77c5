"""Learners of a single rank: one pass is their whole update, and W, their mean, is computed when it is read."""

from __future__ import annotations

from typing import Any, Protocol

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local, States, chunks_of


class Rows(Protocol):
    """A rank's replicas, rows of one block. Only the local step determines the states kept beside the weights."""

    @property
    def weights(self) -> Array:
        """(count, size)"""
        ...

    @property
    def trained(self) -> tuple[Array, States, Array]:
        """Weights, the local step's states, and gradients, each (count, size), as passes take them.

        Under a rule whose replicas are `alike`, weights and states may be (1, size): all learners share that row.
        """
        ...

    @property
    def factors(self) -> Array:
        """The gradients that are kept as factors (Layout.factors)."""
        ...

    @property
    def shares(self) -> Array | None:
        """(count,): the share of each row's batch that counts in the mean of its loss; None if all of every batch does.

        Under a rule whose replicas are `alike`, gradients come multiplied by them.
        """
        ...

    def forget(self) -> None:
        """Resets the local step's states to those of a start."""
        ...

    def level(self) -> None:
        """Copies the first row's states to every row."""
        ...

    def reseed(self, i: int, centre: Array) -> None:
        """Row i starts again from the centre (size,)."""
        ...

    def leave_out(self, i: int) -> None:
        """Row i has learnt nothing this iteration."""
        ...


class Alone:
    """W (size,) of `rows`, and the pass that moves them together without it (flat.sma_alone)."""

    def __init__(self, flat: FlatKernels, rows: Rows, mean: Array) -> None:
        self._flat, self._rows, self._mean = flat, rows, mean
        self._chunks = chunks_of(mean.size, flat.chunk)
        self._stale = False  # the replicas have moved on since W was made of them
        self.sums = flat.zeros((len(self._chunks), 2), "float64")  # of every chunk: sum |u|^2, |sum u|^2

    @property
    def mean(self) -> Array:
        """W, to be read only after `settle`."""
        assert not self._stale, "settle() comes first"
        return self._mean

    def update(self, local: Local, alpha: float, extra: Any, chunks: range) -> None:
        self._stale = True
        self._flat.sma_alone(
            *self._rows.trained, self.sums, local=local, alpha=alpha, extra=extra, chunks=chunks,
            factors=self._rows.factors,
        )  # fmt: skip

    def settle(self) -> None:
        if self._stale:
            self._flat.rows_mean(self._rows.weights, self._mean, chunks=self._chunks)
            self._stale = False

    def load(self, mean: Array) -> None:
        self._stale = False
        self._flat.put(self._mean, mean)
