"""A rank's data to send: its learners' sums, and numbers beside them, in arrays that other ranks may read in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels

NUMBERS = ("square", "attention", "loss", "hits")  # that travel beside the sums
TAIL = len(NUMBERS)
Zeros = Callable[[int, str], Array]


@dataclass(frozen=True, eq=False)
class Message:
    """What an exchange sums over the ranks, in one array: `sums`, which may be empty, and the numbers beside them.

    They are sum |u|^2 of all learners' steps, or of their shares of the batch where gradients are summed; and this
    rank's request to talk, losses and hits.
    """

    whole: Array

    @property
    def sums(self) -> Array:
        return self.whole[: self.whole.size - TAIL]

    @property
    def square(self) -> Array:
        """(1,)"""
        return self.whole[self.whole.size - TAIL : self.whole.size - TAIL + 1]

    @property
    def tally(self) -> Array:
        """(3,): attention, loss, hits."""
        return self.whole[self.whole.size - TAIL + 1 :]

    @property
    def beside(self) -> Message:
        """The numbers alone."""
        return Message(self.whole[self.whole.size - TAIL :])

    @property
    def rows(self) -> Array:
        """As the sum of one row: (1, whole size)."""
        return self.whole.reshape(1, -1)

    def summed(self, sums: Array) -> Message:
        """The sum of the ranks' numbers, whose messages are the rows of `sums`."""
        size = self.whole.size
        return Message(sums[:, size - TAIL : size].sum(axis=0))


class Outbox:
    """Two messages that take turns, as other ranks may still read the one that was sent last; `zeros` makes them."""

    def __init__(self, flat: FlatKernels, size: int, dtype: Any, chunks: int, zeros: Zeros | None = None) -> None:
        self._flat = flat
        self.next, self._last = (Message((zeros or flat.zeros)(size + TAIL, str(dtype))) for _ in range(2))
        self.squares = flat.zeros(chunks, "float64")  # of every chunk, of the message to be sent next

    @property
    def sums(self) -> Array:
        """(size,), to be sent next."""
        return self.next.sums

    @property
    def spare(self) -> Array:
        """(size,) of the array that was sent last. From this iteration's exchange on nobody else reads it."""
        return self._last.sums

    def close(self) -> Message:
        """The whole message, with the sum of all chunks' `squares` beside the sums."""
        self._flat.sum_squares(self.squares, self.next.square)
        return self.next

    def turn(self) -> None:
        """Swaps the arrays: the one that was sent is not written until the other has been."""
        self.next, self._last = self._last, self.next

    def unsent(self) -> dict[str, Array]:
        """The sums since the last exchange, as a checkpoint has them: without what was sent beside them."""
        beside = self.next.beside.whole
        self._flat.put(beside, np.zeros(TAIL, beside.dtype))
        return {"pending": self.next.whole, "squares": self.squares}

    def load(self, unsent: Mapping[str, Array]) -> None:
        """Restores the return value of `unsent`."""
        squares, here = unsent["squares"], self.squares.size
        if squares.size != here:  # of kernels with other chunks; what counts is their sum
            squares = np.pad([squares.sum()], (0, here - 1))
        self._flat.put(self.next.whole, unsent["pending"])
        self._flat.put(self.squares, squares)
