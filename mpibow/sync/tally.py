"""The numbers sent beside the steps: requests to talk, losses and hits."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.sync.outbox import Message


@dataclass(frozen=True)
class Tally:
    """This rank's request to talk (0 or 1), summed losses and hits; then those of all ranks."""

    attention: float = 0.0
    loss: float = 0.0
    hits: float = 0.0

    def __add__(self, other: Tally) -> Tally:
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
        """The communication thread begins."""

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
