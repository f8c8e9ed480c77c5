"""Learners of a single rank: one pass is their whole update, and W, their mean, is computed when it is read."""

from __future__ import annotations

from typing import Any

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local, chunks_of
from mpibow.sync.rule import Rows


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
