"""Outer steps with momentum: what a mean step D of the replicas becomes before the mean W takes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels
from mpibow.sync.averaging import Averaging
from mpibow.sync.rule import OnChunks


class OuterMomentum:
    """W <- W + outer(D), the same for every replica; v, the velocity (size,), is the same on all ranks.

    momentum   v <- mu (rate / rate before) v + D      outer(D) = lr v               SlowMo, arXiv:1910.00643, line 8:
               its momentum is of D / rate, so that a schedule does not distort it
    nesterov   v <- mu v + D                           outer(D) = lr (D + mu v)      as PyTorch's SGD: DiLoCo
    """

    def __init__(self, flat: FlatKernels, size: int, dtype: Any) -> None:
        self._flat, self.rate = flat, 0.0
        self.velocity, self._more = (flat.zeros(size, dtype) for _ in range(2))

    def forget(self) -> None:
        self._flat.put(self.velocity, 0)

    def works(
        self, rule: Averaging, rate: float, weights: Array, mean: Array, sums: Any, squares: Array
    ) -> Sequence[OnChunks]:
        """The pass that moves weights (k, size) and mean (size,) alike by outer(D); sums as sma_apply has them."""
        turned = rate / self.rate if rule.outer == "momentum" and self.rate else 1.0
        self.rate = rate
        return (partial(self._move, rule, rule.outer_momentum * turned, (weights, mean, sums, squares)),)

    def _move(self, rule: Averaging, keep: float, arrays: tuple[Any, Any, Any, Any], chunks: range) -> None:
        _, mean, sums, _ = arrays
        number, chunk = mean.dtype.type, self._flat.chunk
        part = slice(chunks.start * chunk, min(chunks.stop * chunk, mean.size))
        v, more = self.velocity[part], self._more[part]
        step = sums[0, part].copy()
        for row in sums[1:]:
            np.add(step, row[part], out=step)
        np.multiply(step, number(1.0 / rule.k), out=step)
        np.multiply(v, number(keep), out=v)
        np.add(v, step, out=v)
        if rule.outer == "nesterov":
            np.multiply(v, number(rule.lr * rule.outer_momentum), out=more)
            np.add(more, number(rule.lr - 1.0) * step, out=more)
        else:
            np.multiply(v, number(rule.lr), out=more)
            np.subtract(more, step, out=more)
        self._flat.sma_apply(*arrays, extra=0.0, scale=1.0 / rule.k, chunks=chunks, more=self._more)
