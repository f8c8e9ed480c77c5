"""Plain synchronous SGD in place, the baseline; the order of calls is in rule.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local, chunks_of
from mpibow.sync.gain import Meter
from mpibow.sync.rule import TAIL, OnChunks, Rows, RuleState, Zeros
from mpibow.sync.settings import Ssgd


@dataclass
class SsgdRule:
    """Synchronous SGD: gradients averaged over all learners, one step that all replicas take alike."""

    settings: Ssgd
    flat: FlatKernels
    mean: Array  # (size,) the weights, the same in every row
    uniform: bool = True
    follows: bool = True
    deferred: bool = False
    adds: bool = False
    gain: float = 1.0
    meter: Meter | None = None
    zeros: Zeros | None = None  # of what is sent; flat.zeros

    def __post_init__(self) -> None:
        self._size, self._k = self.mean.size, 1
        self.chunk, self.chunks = self.flat.chunk, chunks_of(self._size, self.flat.chunk)
        self._total: Array = (self.zeros or self.flat.zeros)(self._size + TAIL, str(self.mean.dtype))

    @property
    def centre(self) -> Array:
        return self.mean

    def begin(self, rows: Rows, k: int, keep: bool = False) -> None:
        """k learners over all ranks from here on; new rows take the first one's weights and momentum."""
        self._k = k
        if not keep:
            self.restart(rows)

    def restart(self, rows: Rows) -> None:
        self.flat.put(rows.weights, self.mean)
        self.flat.put(rows.momenta[1:], rows.momenta[0])

    def update(self, rows: Rows, local: Local, chunks: range) -> None:
        self.flat.gradient_sum(rows.gradients, self._total[: self._size], chunks=chunks, factors=rows.factors)

    def outgoing(self) -> Array | None:
        return self._total

    def received(self, local: Local, sums: Any = None) -> None:
        pass

    def apply(self, rows: Rows, local: Local) -> tuple[OnChunks]:
        if self.settings.scale_lr:  # Goyal et al., arXiv:1706.02677
            local = Local(local.rate * self._k, local.momentum, local.nesterov, local.decay, local.decayed)

        def run(chunks: range) -> None:
            self.flat.sgd_update(
                rows.weights, rows.momenta, self._total[: self._size], local=local, scale=1.0 / self._k, chunks=chunks
            )
            part = slice(chunks.start * self.flat.chunk, chunks.stop * self.flat.chunk)
            self.flat.put(self.mean[part], rows.weights[0, part])

        return (run,)

    def advance(self) -> None:
        pass

    def settle(self, rows: Rows) -> None:
        pass

    def moved(self) -> None:
        pass

    def unsent(self) -> Array | None:
        return None

    def set_mean(self, mean: Array) -> float:
        return 0.0  # the replicas are the mean, bit for bit

    def shared(self) -> list[Array]:
        return [self.mean]

    def state(self) -> RuleState:
        return RuleState({}, {}, {})

    def load(self, centre: Array, state: RuleState) -> None:
        self.flat.put(self.mean, centre)
