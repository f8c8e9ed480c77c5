"""The scheduler: a rank's learner threads, their tasks, and their meeting in the middle of a pass."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Barrier, BrokenBarrierError
from typing import Any

from mpibow.errors import DeviceError
from mpibow.graph import Array
from mpibow.trace import SILENT, Trace


class Meeting:
    """Learners of one rank that run their passes at the same time; `expect` sets their number before each pass."""

    def __init__(self) -> None:
        self._barrier = Barrier(1)
        self._shown = dict[str, dict[int, Array]]()
        self._error: BaseException | None = None

    def expect(self, count: int) -> None:
        """Learners 0 to count - 1 run the next pass."""
        if count != self._barrier.parties or self._barrier.broken:
            self._barrier, self._error = Barrier(count), None

    def fail(self, error: BaseException) -> None:
        """A learner has stopped: those that wait for it stop too, with the same error."""
        self._error = self._error or error
        self._barrier.abort()

    def show(self, i: int, key: str, array: Array) -> None:
        self._shown.setdefault(key, {})[i] = array

    def arrays(self, key: str) -> Sequence[Array]:
        """The arrays of all learners of this pass, once all are there: those that each showed last, as a learner that
        is bound to another plan shows others. Raises the error of one that has stopped."""
        try:
            self._barrier.wait()
        except BrokenBarrierError:
            raise (self._error or BrokenBarrierError()) from None
        return [self._shown[key][i] for i in range(self._barrier.parties)]


class Seat:
    """Learner i's place at a meeting: the peers of its plan."""

    def __init__(self, meeting: Meeting, i: int) -> None:
        self._meeting, self._i = meeting, i

    def show(self, key: str, array: Array) -> Callable[[], Sequence[Array]]:
        self._meeting.show(self._i, key, array)
        return partial(self._meeting.arrays, key)


Task = Callable[[], object]


class Scheduler:
    """A pool of threads, one a learner. The caller's is the first learner's: waking another costs small nets dearly.

    Thread i always runs learner i, whichever slot that learner takes (`assignment`).
    """

    def __init__(self, trace: Trace = SILENT, *, apart: bool = True) -> None:
        """Not `apart`: all tasks on the caller's thread, in turn, as they only enqueue."""
        self._trace, self._name, self._apart = trace, "", apart
        self._inboxes = list[SimpleQueue[Task | None]]()
        self._outbox: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        self._threads = list[threading.Thread]()

    def run(self, tasks: Sequence[Task], name: str = "batch") -> list[Any]:
        """Runs task i on thread i, all at once; their results in order. Raises the first one's error, if any.

        `name` is their name in a trace.
        """
        self._name = name
        if not self._apart:
            found = []
            for i, task in enumerate(tasks):
                with self._trace.span(f"learner {i}", name):
                    found.append(task())
            return found
        first, others = tasks[:1], tasks[1:]
        while len(self._threads) < len(others):
            self._add()
        for inbox, task in zip(self._inboxes, others, strict=False):
            inbox.put(task)
        results: list[Any] = [None] * len(tasks)
        errors = dict[int, BaseException]()
        for task in first:
            try:
                with self._trace.span("learner 0", name):
                    results[0] = task()
            except BaseException as caught:
                errors[0] = caught
        for _ in others:
            i, result, error = self._outbox.get()
            results[i] = result
            if error is not None:
                errors[i] = error
        if errors:
            raise errors[min(errors)]
        return results

    def workers(self, tasks: int) -> int:
        """The number of threads that share the work of so many tasks: one if tasks only enqueue."""
        return tasks if self._apart else 1

    def close(self) -> None:
        """Ends the threads; each finishes what it has begun."""
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()
        self._inboxes.clear()
        self._threads.clear()

    def _add(self) -> None:
        inbox: SimpleQueue[Task | None] = SimpleQueue()
        i = len(self._threads) + 1
        thread = threading.Thread(target=self._serve, args=(i, inbox), name=f"learner {i}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system's limits on threads or memory
            raise DeviceError(f"learner {i}: {error}; use fewer learners, or raise ulimit -v and -u") from error
        self._inboxes.append(inbox)
        self._threads.append(thread)

    def _serve(self, i: int, inbox: SimpleQueue[Task | None]) -> None:
        row = f"learner {i}"
        while (task := inbox.get()) is not None:
            try:
                with self._trace.span(row, self._name):  # the name of all tasks under way
                    result = task()
                self._outbox.put((i, result, None))
            except BaseException as error:
                self._outbox.put((i, None, error))
