"""A reader that fills slots on threads, some samples at a time, run after run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from mpibow.data.dataset import COUNTER
from mpibow.data.pipeline import Reader
from mpibow.data.slots import Slot

Fill = Callable[..., None]  # samples (n,), counters (n, 4), then the arrays (n, ...) to fill


class Draw(Reader):
    """Fills the arrays `names` of slots with `fill`, on `threads` threads."""

    samples, depth = 64, 2  # one run is made ready while the one before it is delivered
    piece = 4  # samples that a thread takes at once: NumPy's and Python's work for them runs on one thread at a time

    def __init__(self, fill: Fill, names: Sequence[str], threads: int) -> None:
        self._fill, self._names = fill, tuple(names)
        self._pool = ThreadPoolExecutor(threads, "draw")
        self._runs: deque[list[Future[None]]] = deque()

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
