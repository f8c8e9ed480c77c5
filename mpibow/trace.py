"""A trace: the spans of work of every thread of a rank. Recording does no I/O and takes no lock."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

# Row, name, and begin and end in nanoseconds of the machine's monotonic clock, which its processes share.
Span = tuple[str, str, int, int]
Call = Callable[[Callable[[Any], object]], Any]  # runs a function of the communicator, on the thread that may use it

NOTHING = nullcontext()


class Trace:
    """Receives everything that takes time, on any thread. This one records nothing, for runs without a trace."""

    on = False

    def add(self, row: str, name: str, begin: int, end: int) -> None:
        """Adds a span that is over."""

    def span(self, row: str, name: str) -> AbstractContextManager[None]:
        """Records its body as `name` on `row`; every thread has its own row of that name."""
        return NOTHING

    def begin(self, iteration: int, call: Call) -> str:
        """An iteration begins, the same one on all ranks; returns a message for the user, or ''."""
        return ""

    def end(self, call: Call) -> str:
        """The last iteration is over, on all ranks; returns a message for the user, or ''."""
        return ""


SILENT = Trace()


class Recorder(Trace):
    """Spans that begin while it is `on`, in one list per thread, so that recording takes no lock."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lists = list[list[Span]]()
        self._lock = threading.Lock()

    def span(self, row: str, name: str) -> AbstractContextManager[None]:
        return self._timed(row, name) if self.on else NOTHING

    @contextmanager
    def _timed(self, row: str, name: str) -> Iterator[None]:
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(row, name, begin, time.perf_counter_ns())

    def add(self, row: str, name: str, begin: int, end: int) -> None:
        self._list().append((row, name, begin, end))

    def threads(self) -> list[list[Span]]:
        """The spans recorded so far, by thread, each in the order in which its spans ended."""
        with self._lock:
            return [list(spans) for spans in self._lists]

    def _list(self) -> list[Span]:
        try:
            spans: list[Span] = self._local.spans
        except AttributeError:
            spans = self._local.spans = []
            with self._lock:
                self._lists.append(spans)
        return spans
