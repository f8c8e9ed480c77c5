"""Readers that copy stored samples, or draw new ones on threads; and a whole data set in memory."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from .dataset import COUNTER, Array, Dataset, Derived, Samples, read_into
from .slots import Slot

Fill = Callable[..., None]  # samples (n,), counters (n, 4), then the arrays (n, ...) to fill


class Reader:
    """Fills slots, run by run; all its methods are called on the pipeline's thread.

    A run has at most `samples` samples: whole slots, as many as fit, but at least one. `depth` of them may be under way
    at once. This one reads nothing: a device fills the slots from its own memory.
    """

    samples = 1
    depth = 1

    def begin(self, slots: list[Slot]) -> None:
        """Starts a run: `slots` have their samples, epochs and counters, and need the rest."""

    def end(self) -> None:
        """Returns when the oldest run is filled. Raises the error of reading it."""

    def close(self) -> None:
        """Ends the runs under way; nothing writes into a slot any more."""


class DirectReader(Reader):
    """Copies samples as they are stored, on the pipeline's own thread."""

    def __init__(self, data: Samples):
        self.data = data
        self._slots = list[Slot]()

    def begin(self, slots: list[Slot]) -> None:
        self._slots = slots

    def end(self) -> None:
        for slot in self._slots:
            read_into(self.data, slot.samples, slot.arrays)


class DrawingReader(Reader):
    """Fills the arrays `names` of slots with `fill`, on `threads` threads."""

    samples = 64
    depth = 2  # one run is made ready while the one before it is delivered
    piece = 4  # samples that a thread takes at once: NumPy's and Python's work for them runs on one thread at a time

    def __init__(self, fill: Fill, names: Sequence[str], threads: int):
        self._fill = fill
        self._names = tuple(names)
        self._pool = ThreadPoolExecutor(threads, "draw")
        self._runs = deque[list[Future[None]]]()

    def begin(self, slots: list[Slot]) -> None:
        pieces = [(slot, first) for slot in slots for first in range(0, len(slot.samples), self.piece)]
        self._runs.append([self._pool.submit(self._take, slot, first) for slot, first in pieces])

    def end(self) -> None:
        for future in self._runs.popleft():
            future.result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _take(self, slot: Slot, first: int) -> None:
        part = slice(first, first + self.piece)
        arrays = (slot.arrays[name][part] for name in self._names)
        self._fill(slot.samples[part], slot.arrays[COUNTER][part], *arrays)


CHUNK = 1024  # samples that a thread reads at once


class Resident(Derived):
    """A `Dataset` of another's samples, read on `threads` threads."""

    def __init__(self, data: Dataset, threads: int):
        super().__init__(data)
        self.images = np.empty((data.count, *data.shape), data.dtype)
        self.labels = np.empty(data.count, np.int32)

        def load(start: int) -> None:
            part = slice(start, min(start + CHUNK, data.count))
            data.read(np.arange(part.start, part.stop), self.images[part], self.labels[part])

        with ThreadPoolExecutor(threads, "load") as pool:
            list(pool.map(load, range(0, data.count, CHUNK)))  # which raises their errors

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        np.take(self.images, samples, axis=0, out=images, mode="clip")
        np.take(self.labels, samples, out=labels, mode="clip")
