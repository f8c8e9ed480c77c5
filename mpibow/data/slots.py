"""Slots: small batches in memory, ready for a learner, in a ring that is reused; and their path to the learner."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .dataset import COUNTER, Array, Inputs, Samples, inputs_of


def _none() -> Array:
    return np.empty(0, np.int64)


@dataclass
class Slot:
    """One batch by the names of the graph's inputs; `release` gives it back to its ring.

    image (b, ...) and label (b,), or the data set's other arrays, and counter (b, 4) for random numbers.
    """

    arrays: dict[str, Array]
    release: Callable[[], None]
    samples: Array = field(default_factory=_none)  # (b,) their numbers
    epochs: Array = field(default_factory=_none)  # (b,) and the epoch of each
    beside: int = 1  # slots of its iteration and rank
    length: int | None = None  # at which the batch is computed, where its sequences are padded


def specs_of(data: Samples, batch: int) -> Inputs:
    """Shapes and dtypes of the arrays of a slot for samples of `data`."""
    inputs = {name: ((batch, *shape), dtype) for name, (shape, dtype) in inputs_of(data).items()}
    return {**inputs, COUNTER: ((batch, 4), np.dtype(np.uint32))}


def arrays_for(data: Samples, batch: int) -> dict[str, Array]:
    """The arrays of a slot for samples of `data`."""
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in specs_of(data, batch).items()}


def fill_counter(counter: Array, seed: int, epochs: Array | int, samples: Array) -> None:
    """Fills in the values that samples' random numbers depend on: (seed, epoch, sample low, sample high)."""
    counter[:, 0] = seed
    counter[:, 1] = epochs
    counter[:, 2] = samples & 0xFFFFFFFF
    counter[:, 3] = samples >> 32


class Feed:
    """A pipeline's treatment of its slots: here learners read the arrays that the reader has filled.

    A device with memory of its own overrides it. All but `waited` is called on the pipeline's thread.
    """

    def __init__(self, data: Samples):
        self.data = data

    def attach(self) -> None:
        """The thread begins."""

    def slot(self, batch: int) -> Slot:
        """A new slot; its `release` is set by the ring. Raises DeviceError where there is no memory for it."""
        return Slot(arrays_for(self.data, batch), lambda: None)

    def renew(self, slot: Slot) -> None:
        """Returns once a slot that was released may be filled again."""

    def deliver(self, slot: Slot) -> None:
        """A slot is filled and goes to its learner."""

    def waited(self, seconds: float) -> float:
        """Seconds that learners waited when their threads waited `seconds`."""
        return seconds

    def close(self) -> None:
        """Learners are done with all slots."""
