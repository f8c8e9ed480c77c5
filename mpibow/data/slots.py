"""Slots: small batches in memory, ready for a learner, in a ring that is reused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mpibow.cuda.device.driver import Stream
from mpibow.cuda.feed.feeder import DeviceSlot
from mpibow.data.dataset import COUNTER, Array, Inputs, Samples, inputs_of


def _none() -> Array:
    return np.empty(0, np.int64)


@dataclass
class Slot:
    """One batch by the names of the graph's inputs; `release` gives it back to its ring.

    image (b, ...) and label (b,), or the data set's other arrays, and counter (b, 4) for random numbers.

    A learner on a device reads device.arrays, in three steps that only enqueue: `await_on` its stream, its reads,
    `release_after` its stream, which takes the place of `release`. One copy of device.block fills a plan's inputs in
    the layout of device.packing. `arrays` are then the reader's, which are sent to the device.
    """

    arrays: dict[str, Array]
    release: Callable[[], None]
    samples: Array = field(default_factory=_none)  # (b,) their numbers
    epochs: Array = field(default_factory=_none)  # (b,) and the epoch of each
    beside: int = 1  # slots of its iteration and rank
    on_device: DeviceSlot | None = None

    @property
    def device(self) -> DeviceSlot:
        assert self.on_device is not None, "a slot of the host"
        return self.on_device

    def await_on(self, stream: Stream) -> None:
        """Makes all work enqueued on `stream` from now on wait for the filled slot."""
        self.device.await_on(stream, 1 / self.beside)

    def release_after(self, stream: Stream) -> None:
        """Gives the slot back: only work enqueued on `stream` so far reads it."""
        self.device.release(stream)
        self.release()


def specs_of(data: Samples, batch: int) -> Inputs:
    """Shapes and dtypes of the arrays of a slot for samples of `data`."""
    inputs = {name: ((batch, *shape), dtype) for name, (shape, dtype) in inputs_of(data).items()}
    return {**inputs, COUNTER: ((batch, 4), np.dtype(np.uint32))}


def arrays_for(data: Samples, batch: int) -> dict[str, Array]:
    """The arrays of a slot for samples of `data`."""
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in specs_of(data, batch).items()}


def slot_arrays(batch: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> dict[str, Array]:
    """The arrays of a slot for images of `shape`."""
    return {
        "image": np.zeros((batch, *shape), dtype),
        "label": np.zeros(batch, np.int32),
        "counter": np.zeros((batch, 4), np.uint32),
    }


def fill_counter(counter: Array, seed: int, epochs: Array | int, samples: Array) -> None:
    """Fills in the values that samples' random numbers depend on: (seed, epoch, sample low, sample high)."""
    counter[:, 0] = seed
    counter[:, 1] = epochs
    counter[:, 2] = samples & 0xFFFFFFFF
    counter[:, 3] = samples >> 32
