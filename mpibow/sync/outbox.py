"""A rank's data to send: sums of its learners' steps or gradients, in arrays that other ranks may read in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, chunks_of

TAIL = 4  # elements behind the sums: sum |u|^2, and three that the synchroniser fills
Zeros = Callable[[int, str], Array]


class Outbox:
    """Two arrays that take turns, as other ranks may still read the one that was sent last; `zeros` makes them."""

    def __init__(self, flat: FlatKernels, size: int, dtype: Any, zeros: Zeros | None = None) -> None:
        self.size, self._flat = size, flat
        # with TAIL elements behind them: to be sent next, and sent last
        self.whole, self.sent = ((zeros or flat.zeros)(size + TAIL, str(dtype)) for _ in range(2))
        self.squares = flat.zeros(len(chunks_of(size, flat.chunk)), "float64")

    @property
    def sums(self) -> Array:
        """(size,), to be sent next."""
        return self.whole[: self.size]

    @property
    def spare(self) -> Array:
        """(size,) of the array that was sent last. From this iteration's exchange on nobody else reads it."""
        return self.sent[: self.size]

    @property
    def tail(self) -> Array:
        """The part that is sent if no sums are."""
        return self.whole[self.size :]

    def close(self) -> Array:
        """The whole array, with the sum of all chunks' `squares` behind the sums."""
        self._flat.sum_squares(self.squares, self.whole[self.size : self.size + 1])
        return self.whole

    def turn(self) -> None:
        """Swaps the arrays: the one that was sent is not written until the other has been."""
        self.whole, self.sent = self.sent, self.whole

    def unsent(self) -> dict[str, Array]:
        """The steps since the last exchange, as a checkpoint has them: without what was sent behind them."""
        self._flat.put(self.tail, np.zeros(TAIL, self.tail.dtype))
        return {"pending": self.whole, "squares": self.squares}

    def load(self, unsent: Mapping[str, Array]) -> None:
        """Restores the return value of `unsent`."""
        squares, here = unsent["squares"], self.squares.size
        if squares.size != here:  # of kernels with other chunks; what counts is their sum
            squares = np.pad([squares.sum()], (0, here - 1))
        self._flat.put(self.whole, unsent["pending"])
        self._flat.put(self.squares, squares)
