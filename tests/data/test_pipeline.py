"""The host pipeline: exactly the runs that the order lays down, in slots that are reused."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from mpibow.data import Array, ArrayData, Slot, Timeline, fixed, pipeline as pipeline_module, read_into
from mpibow.data.order import samples_at
from mpibow.data.pipeline import Pipeline
from mpibow.data.readers import DirectReader
from mpibow.data.slots import fill_counter
from mpibow.errors import RecordError
from tests.clock import Awaited
from tests.data.slots import piped
from tests.launching import LIMIT

COUNT, BATCH, SEED = 23, 4, 5


def digits() -> ArrayData:
    """Sample n is an image of n, its label n % 10."""
    numbers = np.arange(COUNT)
    return ArrayData(np.tile(numbers[:, None, None, None], (1, 1, 2, 3)).astype(np.uint8), numbers % 10)


@contextmanager
def pipeline(
    timeline: Timeline | Callable[[], Timeline], *, rank: int = 0, iteration: int = 0, prefetch: int = 3,
    data: ArrayData | None = None,
) -> Iterator[Pipeline]:  # fmt: skip
    data = data or digits()
    source = timeline if callable(timeline) else lambda: timeline
    made = Pipeline(data, DirectReader(data), source, rank=rank, iteration=iteration, seed=SEED, prefetch=prefetch)
    try:
        yield made
    finally:
        made.close()


def check(slots: list[Slot], timeline: Timeline, rank: int, t: int) -> None:
    """The slots are those of `rank` at iteration t: contents, labels and counters, by the order itself."""
    counts = timeline.counts(t)
    epochs, samples = samples_at(timeline.position(t), sum(counts) * BATCH, COUNT, SEED)
    assert len(slots) == counts[rank]
    for j, slot in enumerate(slots, sum(counts[:rank])):
        part = slice(j * BATCH, (j + 1) * BATCH)
        np.testing.assert_array_equal(slot.samples, samples[part])
        np.testing.assert_array_equal(slot.arrays["image"], np.tile(samples[part, None, None, None], (1, 1, 2, 3)))
        np.testing.assert_array_equal(slot.arrays["label"], samples[part] % 10)
        counter = [(SEED, epoch, sample, 0) for epoch, sample in zip(epochs[part], samples[part], strict=True)]
        np.testing.assert_array_equal(slot.arrays["counter"], counter)


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_runs_of_a_rank(rank, prefetch):
    timeline = fixed(BATCH, (2, 1, 3))
    with pipeline(timeline, rank=rank, prefetch=prefetch) as made:
        for t in range(20):
            slots = made.next()
            check(slots, timeline, rank, t)
            for slot in slots:
                slot.release()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_change_that_is_announced_while_it_runs(rank):
    """At each iteration the earliest change that is allowed: the one after what may have been read."""
    prefetch = 2
    timelines = [fixed(BATCH, (2, 1))]
    with pipeline(lambda: timelines[-1], rank=rank, prefetch=prefetch) as made:
        for t in range(30):
            slots = made.next()
            check(slots, timelines[-1], rank, t)
            for slot in slots:
                slot.release()
            if t % 4 == 1:
                time.sleep(0.005)  # it reads all that it may
                timelines.append(timelines[-1].announce(t + prefetch + 1, (1 + t % 3, 1 + (t + 1) % 2)))
    assert len(timelines[-1].changes) == 9


def test_it_starts_where_it_is_told_to():
    timeline = fixed(BATCH, (2,), iteration=7, position=1001)
    with pipeline(timeline, iteration=7) as made:
        for t in range(7, 12):
            check(made.next(), timeline, 0, t)


class Counting(ArrayData):
    """Counts the batches that were read."""

    def __init__(self) -> None:
        numbers = np.arange(COUNT)
        super().__init__(np.tile(numbers[:, None, None, None], (1, 1, 2, 3)).astype(np.uint8), numbers % 10)
        self.batches = 0

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        super().read(samples, images, labels)
        self.batches += 1


def settled(value: Callable[[], int], expected: int = 1) -> int:
    """The value once it has reached `expected`, for which it waits LIMIT at most, and no longer moves."""
    end = time.monotonic() + LIMIT
    while value() < expected and time.monotonic() < end:
        time.sleep(0.01)
    last = -1
    while (now := value()) != last:
        last = now
        time.sleep(0.05)
    return last


@pytest.mark.parametrize("prefetch", [1, 4])
def test_no_more_is_read_than_prefetch_iterations_ahead(prefetch):
    """And nothing before half of that may be read."""
    data, half = Counting(), max(prefetch // 2, 1)
    with pipeline(fixed(BATCH, (2,)), data=data, prefetch=prefetch) as made:
        for taken in range(2 * half + 1):
            expected = 2 * (prefetch + taken // half * half)
            assert settled(lambda: data.batches, expected) == expected
            made.next()


def test_slots_are_reused():
    with pipeline(fixed(BATCH, (3,)), prefetch=2) as made:
        slots = {}
        for _ in range(50):
            for slot in made.next():
                slots[id(slot)] = slot
                slot.release()
        assert len(slots) <= 3 * (2 + 1)


def test_a_slot_is_left_alone_until_it_is_released():
    timeline = fixed(BATCH, (2,))
    with pipeline(timeline, prefetch=2) as made:
        held = [made.next() for _ in range(6)]
        for t, slots in enumerate(held):
            check(slots, timeline, 0, t)
        assert len({id(slot) for slots in held for slot in slots}) == 12


class Damaged(ArrayData):
    """The third batch that is read can't be."""

    reads = 0

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        self.reads += 1
        if self.reads == 3:
            raise RecordError("record 17 is damaged")
        super().read(samples, images, labels)


def test_an_error_of_the_reader_surfaces_after_what_was_read_before():
    data = digits()
    timeline = fixed(BATCH, (1,))
    with pipeline(timeline, data=Damaged(data.images, data.labels), prefetch=5) as made:
        check(made.next(), timeline, 0, 0)
        check(made.next(), timeline, 0, 1)
        for _ in range(2):  # and again, whoever asks
            with pytest.raises(RecordError, match=r"^record 17 is damaged$"):
                made.next()


def test_close_ends_a_reader_that_waits_for_room():
    data, before = Counting(), set(threading.enumerate())
    made = piped(data, DirectReader(data), fixed(BATCH, (1,)), 2)
    settled(lambda: data.batches)
    assert (new := set(threading.enumerate()) - before)
    made.close()
    assert not new & set(threading.enumerate())
    made.close()


def test_close_ends_a_caller_that_waits_for_a_slot():
    class Stuck(Counting):
        """Reads when it is let."""

        go = threading.Event()

        def read(self, samples: Array, images: Array, labels: Array) -> None:
            assert self.go.wait(LIMIT)
            raise OSError("too late")

    data, seen = Stuck(), []
    made = piped(data, DirectReader(data), fixed(BATCH, (1,)), 2)

    def wait() -> None:
        try:
            made.next()
        except AssertionError as error:
            seen.append(str(error))

    caller = threading.Thread(target=wait, daemon=True)
    caller.start()
    closer = threading.Thread(target=made.close, daemon=True)
    closer.start()
    caller.join(LIMIT)
    data.go.set()
    closer.join(LIMIT)
    assert seen == ["next() after close()"]


def test_waiting_is_counted(monkeypatch):
    clock = Awaited(monkeypatch, pipeline_module)

    class Slow(Counting):
        def read(self, samples: Array, images: Array, labels: Array) -> None:
            assert clock.begun.wait(LIMIT)
            super().read(samples, images, labels)

    with pipeline(fixed(BATCH, (1,)), data=Slow()) as made:
        made.next()
        assert made.waited == 1.0


def test_counters_of_large_sample_numbers():
    counter = np.zeros((2, 4), np.uint32)
    fill_counter(counter, 2**32 - 1, np.array([3, 4]), np.array([5, (7 << 32) + 6]))
    assert counter.tolist() == [[2**32 - 1, 3, 5, 0], [2**32 - 1, 4, 6, 7]]


class InRuns:
    """Fills runs of up to `samples`, `depth` of them at once, as a library would that works in the background."""

    def __init__(self, data: ArrayData, samples: int, depth: int) -> None:
        self.data, self.samples, self.depth = data, samples, depth
        self.under_way = []
        self.sizes = []
        self.closed = False

    def begin(self, slots: list[Slot]) -> None:
        self.under_way.append(slots)
        self.sizes.append(sum(len(slot.samples) for slot in slots))
        assert len(self.under_way) <= self.depth

    def end(self) -> None:
        for slot in self.under_way.pop(0):
            read_into(self.data, slot.samples, slot.arrays)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("samples", "depth"), [(1, 1), (8, 2), (13, 3), (100, 2)])
@pytest.mark.parametrize("prefetch", [1, 2, 12])
def test_runs_are_cut_into_slots(samples, depth, prefetch):
    """Whatever the size of a run and wherever its ends fall, the slots are the same."""
    data = digits()
    reader = InRuns(data, samples, depth)
    timelines = [fixed(BATCH, (2, 3))]
    made = Pipeline(data, reader, lambda: timelines[-1], rank=1, iteration=0, seed=SEED, prefetch=prefetch)
    for t in range(25):
        slots = made.next()
        check(slots, timelines[-1], 1, t)
        for slot in slots:
            slot.release()
        if t == 9:
            timelines.append(timelines[-1].announce(t + prefetch + 1, (1, 1)))
    made.close()
    assert reader.closed
    assert max(reader.sizes) <= max(samples, BATCH)
    if samples == 13 and prefetch == 12:  # enough is ahead for whole runs: three slots of four
        assert reader.sizes[:5] == [12] * 5
