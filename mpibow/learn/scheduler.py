"""The scheduler: a rank's learner threads, their tasks, and their meeting in the middle of a pass."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from threading import Barrier, BrokenBarrierError
from typing import Any

from mpibow.errors import DeviceError
from mpibow.graph import Array
from mpibow.graph.kernel import Handoff, Posted
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
            self._barrier = Barrier(count)
            self._error = None

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

    def __init__(self, meeting: Meeting, i: int):
        self._meeting = meeting
        self._i = i

    def show(self, key: str, array: Array) -> Callable[[], Sequence[Array]]:
        self._meeting.show(self._i, key, array)
        return partial(self._meeting.arrays, key)


Task = Callable[[], object]  # a learner's gives its Result; None: that comes later


class Scheduler:
    """A pool of threads, one a learner. The caller's is the first learner's: waking another costs small nets dearly.

    Thread i always runs learner i, whichever slot that learner takes (`assignment`).
    """

    def __init__(
        self, trace: Trace = SILENT, *, apart: bool = True, handoff: Callable[[], Handoff] = Handoff, cores: int = 0
    ):
        """Not `apart`: all tasks on the caller's thread, in turn, as they only enqueue. `cores` are the rank's own."""
        self._trace = trace
        self._name = ""
        self._apart = apart
        self._handoff = handoff
        self._cores = cores
        self._handoffs = list[Handoff]()
        self._threads = list[threading.Thread]()
        self._tasks = list[Task | None]()
        self._results = list[Any]()
        self._errors = dict[int, BaseException]()

    def run(self, tasks: Sequence[Task], name: str = "batch") -> list[Any]:
        """Runs task i on thread i, all at once; their results in order. Raises the first one's error, if any.

        `name` is their name in a trace.
        """
        self._name = name
        self._tasks = [*tasks]
        self._results = [None] * len(tasks)
        self._errors = {}
        others = max(len(tasks) - 1, 0) * self._apart
        often = len(tasks) <= self._cores
        while len(self._threads) < others:
            self._add()
        handed = tasks[len(tasks) - others :]
        handoffs = self._handoffs[:others]
        native = [task.begin() if isinstance(task, Posted) and not self._trace.on else None for task in handed]
        posted = [handoff.give(rows, often) for handoff, rows in zip(handoffs, native, strict=True)]
        try:
            for i in range(len(tasks) - others):
                self._perform(i)
                if self._errors:
                    break
            for handoff in handoffs:
                handoff.wait()
        except BaseException:  # KeyboardInterrupt: what was given is not done
            self.close()
            raise
        if self._errors:
            raise self._errors[min(self._errors)]
        for i, task in enumerate(handed):
            if posted[i] and isinstance(task, Posted):
                self._results[1 + i] = task.end()
        return self._results

    def _perform(self, i: int) -> None:
        task = self._tasks[i]
        assert task is not None
        try:
            with self._trace.span(f"learner {i}", self._name):  # the name of all tasks under way
                self._results[i] = task()
        except BaseException as error:
            self._errors[i] = error

    def workers(self, tasks: int) -> int:
        """The number of threads that share the work of so many tasks: one if tasks only enqueue."""
        return tasks if self._apart else 1

    def close(self) -> None:
        """Ends the threads; each finishes what it has begun."""
        tasks = self._tasks
        self._tasks = [None] * (1 + len(self._threads))
        for handoff in self._handoffs:
            handoff.give(None, False)
        for thread in self._threads:
            thread.join()
        del tasks  # until here they may have run
        self._handoffs.clear()
        self._threads.clear()

    def _add(self) -> None:
        handoff = self._handoff()
        i = len(self._threads) + 1
        thread = threading.Thread(target=self._serve, args=(i, handoff), name=f"learner {i}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system's limits on threads or memory
            raise DeviceError(f"learner {i}: {error}; use fewer learners, or raise ulimit -v and -u") from error
        self._handoffs.append(handoff)
        self._threads.append(thread)

    def _serve(self, i: int, handoff: Handoff) -> None:
        done = False
        while True:
            try:
                handoff.take(done)
                if self._tasks[i] is None:
                    return
                self._perform(i)
            except BaseException as error:  # commands have failed
                self._errors[i] = error
            done = True
