"""The meeting of a rank's learners in the middle of a pass, each on its own thread, to read one another's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Barrier, BrokenBarrierError

from mpibow.graph.graph import Array


class Meeting:
    """Learners of one rank that run their passes at the same time; `expect` sets their number before each pass."""

    def __init__(self) -> None:
        self._barrier = Barrier(1)
        self._shown: dict[str, dict[int, Array]] = {}
        self._present: dict[str, Sequence[Array]] = {}
        self._error: BaseException | None = None

    def expect(self, count: int) -> None:
        """Learners 0 to count - 1 run the next pass."""
        if count != self._barrier.parties or self._barrier.broken:
            self._barrier, self._present, self._error = Barrier(count), {}, None

    def fail(self, error: BaseException) -> None:
        """A learner has stopped: those that wait for it stop too, with the same error."""
        self._error = self._error or error
        self._barrier.abort()

    def show(self, i: int, key: str, array: Array) -> None:
        self._shown.setdefault(key, {})[i] = array

    def arrays(self, key: str) -> Sequence[Array]:
        """The arrays of all learners of this pass, once all are there. Raises the error of one that has stopped."""
        try:
            self._barrier.wait()
        except BrokenBarrierError:
            raise (self._error or BrokenBarrierError()) from None
        if (found := self._present.get(key)) is None:  # several may write it, all the same
            found = self._present[key] = tuple(self._shown[key][i] for i in range(self._barrier.parties))
        return found


class Seat:
    """Learner i's place at a meeting: the peers of its plan."""

    def __init__(self, meeting: Meeting, i: int) -> None:
        self._meeting, self._i = meeting, i

    def show(self, key: str, array: Array) -> Callable[[], Sequence[Array]]:
        self._meeting.show(self._i, key, array)
        return partial(self._meeting.arrays, key)
