"""Sums over nodes without Python: their arithmetic, and what works on an array's pieces while messages come and go."""

from collections.abc import Callable, Sequence

import numpy as np

from mpibow.graph import Array
from mpibow.system.process import address

from .code_cache import jit
from .command import Command, Row, call, execute
from .native import integers
from .recorder import command

UNDER_WAY = 3  # pieces at a time: one is added up while others travel
PART, AT, END = range(3)  # of a piece: its part, its next command, and the end of them
FIRST, NEXT = range(2)  # of a window: the pieces under way
WRITTEN, SUMMED = range(2)  # of steps: parts that this rank has written, and that are summed and `done`
MINE, BEFORE, PARTS, MET, TEST, SLEEP, PAUSE, REST, PAUSES = range(9)  # of numbers
BOARD = 2  # a rank's words on the board: the parts that it has written, and those that have ended, behind these two
FAILED = -1


@jit
def add(target: Array, source: Array) -> None:
    for i in range(len(target)):
        target[i] += source[i]


@jit
def put(target: Array, source: Array) -> None:
    for i in range(len(target)):
        target[i] = source[i]


@jit
def narrow(target: Array, source: Array) -> None:
    """uint16 (n,) <- the nearest bfloat16 of float32 (n,), of two the even one: the upper halves. NaN stays NaN."""
    bits = source.view(np.uint32)
    for i in range(len(target)):
        word = np.int64(bits[i])
        target[i] = 0x7FC0 if np.isnan(source[i]) else (word + (word >> 16 & 1) + 0x7FFF) >> 16


@jit
def widen(target: Array, source: Array) -> None:
    """float32 (n,) <- what `narrow` gave."""
    bits = target.view(np.uint32)
    for i in range(len(bits)):
        bits[i] = np.int64(source[i]) << 16


@jit
def work(
    table: Array, pieces: Array, window: Array, steps: Array, board: Array, numbers: Array,
    ready: Array, done: Array, meeting: Array,
) -> int:  # fmt: skip
    """Works on pieces, each once all ranks of the node have written its part, until all parts are summed, or the ranks'
    `meeting` is over that is still to be looked at, or for so many pauses. Returns MPI's error code, FAILED, or 0.

    `ready` is called to write more parts, `done` for each part that is summed, in order, once ranks have MET.
    """
    mine = numbers[MINE]
    before = numbers[BEFORE]
    count = len(pieces)
    for _ in range(numbers[PAUSES]):
        if execute(ready) >= 0:
            return FAILED
        board[mine, BOARD] = before + steps[WRITTEN]
        written = board[:, BOARD].min() - before
        moved = True
        while moved:
            moved = False
            while (
                window[NEXT] < count
                and pieces[window[NEXT], PART] < written
                and window[NEXT] < window[FIRST] + UNDER_WAY
            ):
                window[NEXT] += 1
            for p in range(window[FIRST], window[NEXT]):
                while pieces[p, AT] < pieces[p, END]:
                    row = table[pieces[p, AT]]
                    code = call(row[0], row[1], row[2], row[3], row[4])
                    if code != 0:
                        return code
                    if row[0] == numbers[TEST] and integers(row[3], 1)[0] == 0:
                        break
                    pieces[p, AT] += 1
            while window[FIRST] < window[NEXT] and pieces[window[FIRST], AT] == pieces[window[FIRST], END]:
                window[FIRST] += 1
                moved = True
        board[mine, BOARD + 1] = before + min(
            written, pieces[window[FIRST], PART] if window[FIRST] < count else numbers[PARTS]
        )
        ended = board[:, BOARD + 1].min() - before
        moved = False
        while numbers[MET] and steps[SUMMED] < ended:
            if execute(done) >= 0:
                return FAILED
            steps[SUMMED] += 1
            moved = True
        if steps[SUMMED] == numbers[PARTS]:
            return 0
        if not numbers[MET] and len(meeting):
            row = meeting[0]
            code = call(row[0], row[1], row[2], row[3], row[4])
            if code != 0 or integers(row[3], 1)[0]:
                return code
        if not moved and numbers[PAUSES] > 1:
            call(numbers[SLEEP], numbers[PAUSE if steps[WRITTEN] > steps[SUMMED] else REST], 0, 0, 0)
    return 0


def rehearse() -> None:
    """Compiles what adds up float32."""
    one = np.zeros(1, np.float32)
    table = np.zeros((0, 5), np.int64)
    for function in (add, put):
        command(function, one, one)()
    none = np.zeros((0, 3), np.int64)
    numbers = np.zeros(9, np.int64)  # no pauses: it returns at once
    work(table, none, numbers[:2], numbers[:2], np.zeros((1, 4), np.int64), numbers, table, table, table)


class Sums:
    """The sums over all ranks of an array's parts, each of pieces, which are commands; MPI's error codes are raised by
    `error`."""

    def __init__(
        self,
        parts: Sequence[Sequence[Command]],
        error: Callable[[int], Exception],
        library: str,
        board: Array,
        mine: int,
    ):
        """`board` (ranks, words) is the node's, whose row `mine` is this rank's; MPI is in the file `library`."""
        pieces = [(i, piece.table) for i, part in enumerate(parts) for piece in part]
        ends = np.cumsum([0, *(len(table) for _, table in pieces)])
        self._begins = ends[:-1]
        self._pieces = np.array([[i for i, _ in pieces], ends[:-1], ends[1:]]).T.copy()
        self._table = np.concatenate([np.zeros((0, 5), np.int64), *(table for _, table in pieces)])
        self._window = np.zeros(2, np.int64)
        self._board = board
        self._kept = parts
        self._error = error
        test = address("MPI_Testall", library)
        sleep = address("usleep")
        self._numbers = np.array([mine, 0, len(parts), 0, test, sleep, 0, 0, 1])

    def begin(self, before: int) -> None:
        """`before` parts have been on the board."""
        self._pieces[:, AT] = self._begins
        self._window[:] = 0
        self._numbers[BEFORE] = before

    def work(
        self, ready: Array, done: Array, steps: Array, met: bool, meeting: Row | None, pauses: Sequence[int]
    ) -> bool:
        """As `work` above; whether all is over. `pauses`: two in us, and how many."""
        numbers = self._numbers
        asked = np.array([meeting] if meeting else [], np.int64).reshape(-1, 5)
        numbers[MET] = met
        numbers[PAUSE:] = pauses
        code = work(self._table, self._pieces, self._window, steps, self._board, numbers, ready, done, asked)
        if code > 0:
            raise self._error(code)
        if code:
            raise RuntimeError("a step of an exchange failed")
        return bool(steps[SUMMED] == numbers[PARTS])
