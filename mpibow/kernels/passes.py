"""What a kernel set offers for flat arrays, and how the work on them is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mpibow.graph.graph import Array

CHUNK = 131072  # elements. Smaller ones fit caches better, but NumPy's threads then spend their time on the GIL


@dataclass(frozen=True)
class Local:
    """The numbers of one local step: rate, momentum, Nesterov's form or not, decay of the first `decayed` elements."""

    rate: float
    momentum: float
    nesterov: bool
    decay: float
    decayed: int


class FlatKernels(Protocol):
    """One pass each over flat arrays; `mpibow.kernels.numpy.flat` documents and defines them."""

    def sma_update(
        self, weights: Array, momenta: Array, gradients: Array, total: Array, squares: Array, centre: Array,
        common: Array, *, local: Local, alpha: float, gain: float, begin: bool, chunks: range,
    ) -> None: ...  # fmt: skip

    def gradient_sum(self, gradients: Array, total: Array, *, chunks: range) -> None: ...

    def sgd_update(
        self, weights: Array, momenta: Array, gradient: Array, *, local: Local, scale: float, chunks: range
    ) -> None: ...

    def centre_update(
        self, mean: Array, centre: Array, previous: Array, total: Array | None, *, pull: float, alpha: float,
        momentum: float, scale: float, chunks: range,
    ) -> None: ...  # fmt: skip

    def add_scaled(self, target: Array, source: Array, *, scale: float, chunks: range) -> None: ...


def chunks_of(size: int) -> range:
    """All chunks of a flat array of `size` elements."""
    return range(-(-size // CHUNK))


def share_of(chunks: range, worker: int, workers: int) -> range:
    """The chunks that worker number `worker` of `workers` takes."""
    n = len(chunks)
    return chunks[worker * n // workers : (worker + 1) * n // workers]
