"""A rank's data to send: its learners' sums, in arrays that other ranks may read in place; the tally beside them."""

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from mpibow.graph import Array
from mpibow.kernels import FlatKernels
from mpibow.system.process import run_soon

NUMBERS = ("square", "attention", "loss", "hits")  # that travel beside the sums
TAIL = len(NUMBERS)
REQUEST = 2.0**-16  # many ranks' requests stay below one learner
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
        return self.whole[:-TAIL]

    @property
    def square(self) -> Array:
        """(1,)"""
        return self.whole[-TAIL : 1 - TAIL]

    @property
    def tally(self) -> Array:
        """(3,): attention, loss, hits."""
        return self.whole[1 - TAIL :]

    @property
    def beside(self) -> "Message":
        """The numbers alone."""
        return Message(self.whole[-TAIL:])

    @property
    def rows(self) -> Array:
        """As the sum of one row: (1, whole size)."""
        return self.whole.reshape(1, -1)

    def summed(self, sums: Array) -> "Message":
        """The sum of the ranks' numbers, whose messages are the rows of `sums`."""
        size = self.whole.size
        return Message(sums[:, size - TAIL : size].sum(axis=0))


class Outbox:
    """Two messages that take turns, as other ranks may still read the one that was sent last; `zeros` makes them."""

    def __init__(self, flat: FlatKernels, size: int, dtype: Any, chunks: int, zeros: Zeros | None):
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

    def swap(self) -> None:
        """Swaps the arrays: the one that was sent is not written until the other has been."""
        self.next, self._last = self._last, self.next

    def unsent(self) -> dict[str, Array]:
        """The sums since the last exchange, as a checkpoint has them: without what was sent beside them."""
        beside = self.next.beside.whole
        self._flat.put(beside, np.zeros(TAIL, beside.dtype))
        return {"pending": self.next.whole, "squares": self.squares}

    def load(self, unsent: Mapping[str, Array]) -> None:
        """Restores the return value of `unsent`."""
        squares = unsent["squares"]
        here = self.squares.size
        if squares.size != here:  # of kernels with other chunks; what counts is their sum
            squares = np.pad([squares.sum()], (0, here - 1))
        self._flat.put(self.next.whole, unsent["pending"])
        self._flat.put(self.squares, squares)


@dataclass(frozen=True)
class Tally:
    """The learners that are left out, and REQUEST where this rank asks to talk; losses and hits of the others, summed.

    Then those of all ranks.
    """

    attention: float = 0.0
    loss: float = 0.0
    hits: float = 0.0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.attention + other.attention, self.loss + other.loss, self.hits + other.hits)


Late = tuple[float, float, bool]  # a learner's loss and hits, and whether all its results are finite


class Book:
    """Enters the results of a rank's learners, and reads those of all ranks; here the host's, which are there at once.

    A device overrides it. With `enqueues` only `close` waits: all that follows an exchange is enqueued behind it.
    """

    enqueues = False
    stream: Any = None  # the stream that exchanges are enqueued on

    def __init__(self) -> None:
        self.unsent = Tally()

    def attach(self) -> None:
        """The communication thread begins: it sleeps most of the time, and often has no core of its own."""
        run_soon()

    def join(self, beside: bool) -> None:
        """Work enqueued from now on waits for the learners' gradients, computed `beside` the last exchange or not."""

    def gather(self) -> None:
        """Called before an update: learners may report new results once it is over."""

    def begin(self) -> None:
        """An exchange begins."""

    def seconds(self) -> tuple[float, float] | None:
        """The seconds that learners stood still for exchanges, and that these took, on the device; None on a host."""
        return None

    def enter(self, tally: Tally, message: Message | None) -> None:
        """This iteration's; into the message, if there is one."""
        self.unsent += tally
        if message is not None:
            message.tally[:] = self.unsent.attention, self.unsent.loss, self.unsent.hits  # astuple takes 30 us
            self.unsent = Tally()

    def sent(self, message: Message | None) -> None:
        """It was sent (None: nothing was), and all that follows from it is done or enqueued."""

    def close(self, message: Message | None) -> Tally | None:
        """The results of all ranks, if anything was sent."""
        return None if message is None else Tally(*message.tally.tolist())

    def late(self) -> list[Late]:
        """The results of the iteration before, if they come only now; once."""
        return []

    def spoilt(self) -> dict[int, float]:
        """Learners whose late results, not read yet, are not finite, nor then their statistics; and their losses."""
        return {}

    def scale_is_large(self) -> bool:
        """Whether the loss's scale, where 16 bits need one, may still be halved."""
        return False

    def state(self) -> dict[str, Array]:
        """For a checkpoint. `tally`: the numbers entered and not sent, (3,) float64, then every late result's loss,
        hits and |gradient|^2; and the loss's `scale`, if there is one."""
        return {"tally": np.array(astuple(self.unsent), np.float64)}

    def load(self, tally: Array, scale: Array | None = None) -> None:
        """A run that began on another device may have a scale."""
        self.unsent = Tally(*tally[:3].tolist())
