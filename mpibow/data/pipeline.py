"""The pipeline: a thread that has any reader fill slots ahead of the learners."""

import threading
import time
from collections import deque
from collections.abc import Callable

from mpibow.trace import SILENT, Trace

from .dataset import Samples
from .lengths import lengths_of
from .order import samples_at
from .readers import Reader
from .slots import Feed, Slot, fill_counter
from .timeline import Timeline


class Pipeline:
    """Gives the slots of one rank, iteration after iteration; at most `prefetch` iterations are read ahead.

    Slot j of an iteration is the j-th run of `batch` samples of the stream, learners numbered over all ranks.
    `timeline(t)` determines the slots of iteration t. A change must be announced more than `prefetch` iterations before
    it begins, so nothing that was read is ever thrown away. `feed` takes slots to where learners read them.

    The thread is woken when half of these may be read, not for every iteration: waking it is expensive for small nets.
    """

    def __init__(
        self,
        data: Samples,
        reader: Reader,
        timeline: Callable[[], Timeline],
        *,
        rank: int,
        iteration: int,
        seed: int,
        prefetch: int,
        trace: Trace = SILENT,
        feed: Feed | None = None,
    ):
        self._data = data
        self._reader = reader
        self._timeline = timeline
        self._feed = feed or Feed(data)
        self._lengths = lengths_of(data)
        self._rank = rank
        self._seed = seed
        self._prefetch = prefetch
        self._trace = trace
        self._next = iteration
        self._planned = iteration
        self._waiting: deque[Slot] = deque()  # planned, in no run yet
        self._wanted = 0  # samples of them
        self._runs: deque[list[Slot]] = deque()  # slots of every run under way
        self._iterations: deque[list[Slot]] = deque()  # not ready yet
        self._filled = 0  # slots of them that are
        self._ready: deque[list[Slot]] = deque()
        self._free: deque[Slot] = deque()
        self._made = 0  # slots of the ring
        self._state = threading.Condition()
        self._error: BaseException | None = None
        self._closed = False
        self._waited = 0.0
        self._thread = threading.Thread(target=self._serve, name="pipeline", daemon=True)
        self._thread.start()

    def next(self) -> list[Slot]:
        """The slots of the next iteration, one a learner of this rank. Raises the error of reading them."""
        with self._state:
            if not self._ready:
                begin = time.perf_counter()
                while not self._ready and self._error is None and not self._closed:
                    self._state.wait()
                self._waited += time.perf_counter() - begin
            if not self._ready:
                assert self._error is not None, "next() after close()"
                raise self._error
            slots = self._ready.popleft()
            self._next += 1
            if self._may_plan() or not self._ready:
                self._state.notify_all()
        return slots

    @property
    def waited(self) -> float:
        """Seconds that learners waited so far."""
        return self._feed.waited(self._waited)

    def close(self) -> None:
        """Learners must be done with their slots."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        self._thread.join()
        self._feed.close()

    def _serve(self) -> None:
        try:
            self._feed.attach()
            while self._plan():
                while len(self._runs) < self._reader.depth and self._worth_a_run():
                    self._begin()
                if self._runs:
                    with self._trace.span("data", "read"):
                        self._reader.end()
                    self._deliver(self._runs.popleft())
        except BaseException as error:
            with self._state:
                self._error = error
                self._state.notify_all()
        finally:
            self._reader.close()

    def _may_plan(self) -> bool:
        """Whether half of the iterations that may be read ahead are not yet planned."""
        return self._next + self._prefetch - self._planned >= max(self._prefetch // 2, 1)

    def _plan(self) -> bool:
        """Plans the slots of all iterations that may be read, once there is anything to do; False when closed."""
        with self._state:
            self._state.wait_for(lambda: self._closed or self._runs or self._may_plan() or self._worth_a_run())
            if self._closed:
                return False
            limit = self._next + self._prefetch
        while self._planned < limit:
            slots = self._slots_of(self._planned)
            self._waiting.extend(slots)
            self._wanted += sum(len(slot.samples) for slot in slots)
            self._iterations.append(slots)
            self._planned += 1
        return True

    def _worth_a_run(self) -> bool:
        """Whether there is a whole run, or learners have nothing else to wait for."""
        return self._wanted >= self._reader.samples or (self._wanted > 0 and not (self._runs or self._ready))

    def _begin(self) -> None:
        slots = [self._waiting.popleft()]
        room = self._reader.samples
        while self._waiting and (len(slots) + 1) * len(slots[0].samples) <= room:
            slots.append(self._waiting.popleft())
        self._wanted -= len(slots) * len(slots[0].samples)
        self._runs.append(slots)
        self._reader.begin(slots)

    def _deliver(self, filled: list[Slot]) -> None:
        for slot in filled:
            self._feed.deliver(slot)
        self._filled += len(filled)
        with self._state:
            while self._iterations and self._filled >= len(self._iterations[0]):
                slots = self._iterations.popleft()
                self._filled -= len(slots)
                self._ready.append(slots)
            self._state.notify_all()

    def _slots_of(self, iteration: int) -> list[Slot]:
        """The slots of an iteration, to be filled."""
        timeline = self._timeline()
        counts = timeline.counts(iteration)
        batch = timeline.batch
        start = timeline.position(iteration) + sum(counts[: self._rank]) * batch
        slots = []
        for j in range(counts[self._rank]):
            slot = self._slot(batch, counts[self._rank])
            slot.epochs, slot.samples = samples_at(
                start + j * batch, batch, self._data.count, self._seed, self._lengths
            )
            slot.length = self._lengths.length_of(slot.samples) if self._lengths else None
            slot.beside = counts[self._rank]
            fill_counter(slot.arrays["counter"], self._seed, slot.epochs, slot.samples)
            slots.append(slot)
        return slots

    def _slot(self, batch: int, learners: int) -> Slot:
        """The slot that has been free for longest, or a new one.

        Each learner has one more than iterations are read ahead: a learner on a device gives a slot back long before it
        has read it. Where more are needed the ring grows.
        """
        free = None
        with self._state:
            if self._free and self._made >= learners * (self._prefetch + 1):
                free = self._free.popleft()
        if free is not None:
            self._feed.renew(free)
            return free
        self._made += 1
        slot = self._feed.slot(batch)

        def release() -> None:
            with self._state:
                self._free.append(slot)

        slot.release = release
        return slot
