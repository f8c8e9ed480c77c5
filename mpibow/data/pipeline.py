"""The host pipeline: a thread that fills slots ahead of the learners."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from mpibow.data.dataset import Samples, read_into
from mpibow.data.order import samples_at
from mpibow.data.slots import Slot, arrays_for, fill_counter
from mpibow.data.timeline import Timeline


class Pipeline(Protocol):
    """Gives the slots of one rank, iteration after iteration; `waited` is the seconds its callers waited for them."""

    waited: float

    def next(self) -> list[Slot]:
        """The slots of the next iteration, one a learner of this rank. Raises what reading raised."""
        ...

    def close(self) -> None: ...


class HostPipeline:
    """Reads samples on one thread, `prefetch` iterations ahead at the most.

    Slot j of an iteration is the j-th run of `batch` samples of the stream, learners numbered over all ranks. What is
    read for iteration t is laid down by `timeline(t)`; a change must be announced more than `prefetch` iterations
    before it begins, so nothing that was read is ever thrown away.
    """

    def __init__(
        self, data: Samples, timeline: Callable[[], Timeline], *, rank: int, iteration: int, seed: int, prefetch: int
    ) -> None:
        self._data, self._timeline, self._rank, self._seed, self._prefetch = data, timeline, rank, seed, prefetch
        self._next, self._produced = iteration, iteration
        self._ready: deque[list[Slot]] = deque()
        self._free: list[Slot] = []
        self._state = threading.Condition()
        self._error: BaseException | None = None
        self._closed = False
        self.waited = 0.0
        self._thread = threading.Thread(target=self._serve, name="pipeline", daemon=True)
        self._thread.start()

    def next(self) -> list[Slot]:
        begin = time.perf_counter()
        with self._state:
            self._state.wait_for(lambda: self._ready or self._error is not None or self._closed)
            if not self._ready:
                assert self._error is not None, "next() after close()"
                raise self._error
            slots = self._ready.popleft()
            self._next += 1
            self._state.notify_all()
        self.waited += time.perf_counter() - begin
        return slots

    def close(self) -> None:
        with self._state:
            self._closed = True
            self._state.notify_all()
        self._thread.join()

    def _serve(self) -> None:
        try:
            while True:
                with self._state:
                    self._state.wait_for(lambda: self._closed or self._produced < self._next + self._prefetch)
                    if self._closed:
                        return
                slots = self._read(self._produced)
                with self._state:
                    self._ready.append(slots)
                    self._produced += 1
                    self._state.notify_all()
        except BaseException as error:
            with self._state:
                self._error = error
                self._state.notify_all()

    def _read(self, iteration: int) -> list[Slot]:
        timeline = self._timeline()
        counts, batch = timeline.counts(iteration), timeline.batch
        start = timeline.position(iteration) + sum(counts[: self._rank]) * batch
        slots = []
        for j in range(counts[self._rank]):
            slot = self._slot(batch)
            epochs, samples = samples_at(start + j * batch, batch, self._data.count, self._seed)
            read_into(self._data, samples, slot.arrays)
            fill_counter(slot.arrays["counter"], self._seed, epochs, samples)
            slot.samples = samples
            slots.append(slot)
        return slots

    def _slot(self, batch: int) -> Slot:
        """A free slot, or a new one: the ring is as large as it ever had to be."""
        with self._state:
            if self._free:
                return self._free.pop()
        slot = Slot(arrays_for(self._data, batch), lambda: None)

        def release() -> None:
            with self._state:
                self._free.append(slot)

        slot.release = release
        return slot
