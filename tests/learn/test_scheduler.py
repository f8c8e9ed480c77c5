"""The scheduler: one thread a learner, results in order, errors raised; and learners that meet amid a pass."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from mpibow.errors import DeviceError
from mpibow.graph import ALONE
from mpibow.learn.scheduler import Meeting, Scheduler, Seat
from tests.refusals import refuses


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler()
    yield made
    made.close()


def test_results_are_in_the_order_of_the_tasks(scheduler: Scheduler):
    def task(i: int) -> int:
        time.sleep(0.01 * (3 - i))  # the last one ends first
        return 10 * i

    assert scheduler.run([lambda i=i: task(i) for i in range(4)]) == [0, 10, 20, 30]


def test_tasks_run_at_the_same_time(scheduler: Scheduler):
    meeting = threading.Barrier(4, timeout=720)  # nobody passes until all four are there
    assert sorted(scheduler.run([meeting.wait] * 4)) == [0, 1, 2, 3]


def test_task_i_always_runs_on_thread_i(scheduler: Scheduler):
    names = [scheduler.run([lambda: threading.current_thread().name] * n) for n in (3, 1, 2, 4, 3)]
    own = threading.current_thread().name
    assert names == [[own, *(f"learner {i}" for i in range(1, n))] for n in (3, 1, 2, 4, 3)]
    before = scheduler.run([threading.get_ident] * 4)
    assert scheduler.run([threading.get_ident] * 4) == before
    assert before[0] == threading.get_ident()
    assert len(set(before)) == 4


def test_nothing_to_do(scheduler: Scheduler):
    assert scheduler.run([]) == []


class Stop(BaseException):
    """Not an Exception, as KeyboardInterrupt is not."""


@pytest.mark.parametrize("kind", [ValueError, Stop])
def test_the_first_tasks_error_is_raised_after_all_are_done(scheduler: Scheduler, kind: type[BaseException]):
    done = []

    def fail(i: int, seconds: float) -> None:
        time.sleep(seconds)
        done.append(i)
        raise kind(f"task {i}")

    with pytest.raises(kind, match="task 1"):
        scheduler.run([lambda: done.append(0), lambda: fail(1, 0.05), lambda: fail(2, 0.0)])
    assert sorted(done) == [0, 1, 2]


def test_it_goes_on_after_an_error(scheduler: Scheduler):
    for tasks in ([lambda: 1, lambda: 1 // 0], [lambda: 1 // 0, lambda: 1]):
        with pytest.raises(ZeroDivisionError):
            scheduler.run(tasks)
    assert scheduler.run([lambda: 2, lambda: 3]) == [2, 3]


def test_close_ends_the_threads():
    scheduler = Scheduler()
    _, *threads = scheduler.run([threading.current_thread] * 3)
    assert all(thread.is_alive() for thread in threads)
    scheduler.close()
    assert not any(thread.is_alive() for thread in threads)
    scheduler.close()


def test_a_closed_one_may_be_used_again():
    scheduler = Scheduler()
    scheduler.run([int] * 2)
    scheduler.close()
    assert scheduler.run([lambda: threading.current_thread().name] * 2)[1] == "learner 1"
    scheduler.close()


def test_a_thread_that_the_system_refuses(scheduler: Scheduler, monkeypatch):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    scheduler.run([int] * 2)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with refuses("learner 2: can't start new thread; use fewer learners, or raise ulimit -v and -u", DeviceError):
        scheduler.run([int] * 3)
    scheduler.close()  # waits for none that never began


def test_threads_do_not_keep_the_process_alive(scheduler: Scheduler):
    _, thread = scheduler.run([threading.current_thread] * 2)
    assert thread.daemon


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


def test_all_see_the_same_in_the_learners_order(scheduler: Scheduler):
    meeting = Meeting()
    tasks = learners(meeting, 4)
    for count in (4, 1, 3):  # those that have gone are not waited for
        meeting.expect(count)
        for found in scheduler.run(tasks[:count]):
            for n, (first, second) in enumerate(found):
                assert first == [[i, n] for i in range(count)]
                assert second == [[n + count]] * count


def test_one_that_stops_stops_all_with_its_error(scheduler: Scheduler):
    meeting = Meeting()
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

    meeting.expect(3)
    with pytest.raises(MemoryError, match="no room"):
        scheduler.run([lambda: wait(0), lambda: wait(1), stop])
    meeting.expect(3)  # the next pass begins anew
    scheduler.run([lambda i=i: shared[i]() for i in range(3)])


def test_alone_there_is_ones_own():
    array = np.zeros(1)
    (found,) = ALONE.show("key", array)()
    assert found is array
