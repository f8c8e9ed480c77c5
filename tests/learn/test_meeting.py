"""Learners that meet in the middle of a pass: all see the same arrays, and none waits for one that has stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from mpibow.graph.kernel import ALONE
from mpibow.learn.scheduler import Meeting, Scheduler, Seat

PASSES = 50


def learners(meeting: Meeting, count: int) -> list[Callable[[], list]]:
    """Each shows its number, and then how often it has; what it finds in each pass."""
    arrays = [(np.zeros(2), np.zeros(1)) for _ in range(count)]
    seats = [Seat(meeting, i) for i in range(count)]
    shared = [
        (seat.show("first", first), seat.show("second", second))
        for seat, (first, second) in zip(seats, arrays, strict=True)
    ]

    def one(i: int) -> list:
        found = []
        for n in range(PASSES):
            arrays[i][0][:] = i, n
            seen = [array.tolist() for array in shared[i][0]()]
            arrays[i][1][:] = n + len(seen)
            found.append((seen, [array.tolist() for array in shared[i][1]()]))
        return found

    return [lambda i=i: one(i) for i in range(count)]


def test_all_see_the_same_in_the_learners_order() -> None:
    meeting, scheduler = Meeting(), Scheduler()
    tasks = learners(meeting, 4)
    try:
        for count in (4, 1, 3):  # those that have gone are not waited for
            meeting.expect(count)
            for found in scheduler.run(tasks[:count]):
                for n, (first, second) in enumerate(found):
                    assert first == [[i, n] for i in range(count)]
                    assert second == [[n + count]] * count
    finally:
        scheduler.close()


def test_one_that_stops_stops_all_with_its_error() -> None:
    meeting, scheduler = Meeting(), Scheduler()
    seats = [Seat(meeting, i) for i in range(3)]
    shared = [seat.show("key", np.zeros(1)) for seat in seats]
    waiting = threading.Event()

    def wait(i: int) -> None:
        waiting.set()
        shared[i]()

    def stop() -> None:
        waiting.wait()
        meeting.fail(MemoryError("no room"))
        raise MemoryError("no room")

    try:
        meeting.expect(3)
        with pytest.raises(MemoryError, match="no room"):
            scheduler.run([lambda: wait(0), lambda: wait(1), stop])
        meeting.expect(3)  # the next pass begins anew
        scheduler.run([lambda i=i: shared[i]() for i in range(3)])
    finally:
        scheduler.close()


def test_alone_there_is_ones_own() -> None:
    array = np.zeros(1)
    (found,) = ALONE.show("key", array)()
    assert found is array
