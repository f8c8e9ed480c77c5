"""Work handed to a waiting thread: a learner's whole batch is commands, which it executes without Python.

Waking a thread that sleeps takes 50 to 100 us, as much as a layer of a small net, so it looks for work a while before
it sleeps; for a while it does not, once something else has taken its core.
"""

import ctypes
from collections.abc import Sequence

import numpy as np

from mpibow.graph import Array, ArraysByName, kernel
from mpibow.graph.bound import BoundPlan
from mpibow.graph.kernel import Rows

from .code_cache import jit
from .command import Command, call, execute, together
from .native import Doubles, Floats, Octets, Words, floats, native, octets, words
from .numeric import inlined
from .steps import summed

_f = np.float32
LIBRARY = ctypes.PyDLL(None)  # C's, called without giving up Python's lock
NAMES = "clock_gettime", "sem_trywait", "sem_wait", "sem_post"
FUNCTIONS = [ctypes.cast(LIBRARY[name], ctypes.c_void_p).value for name in NAMES]
TABLE, COUNT, LOOKS, GIVEN, DONE, CLOCK, TRY, WAIT, POST = range(9)  # words of a box: all but two are addresses
SECONDS, AWAY = 4, 6  # words behind a semaphore: the time, and waits that do not look
LOOK = 300_000  # nanoseconds before it sleeps
CALM = 50_000  # in which the other thread leaves Python's lock, as waiting for that is sleep
SLOW, RESTS = 200_000, 1000  # a look so late: something else wants the core, which is left alone in so many waits
BLOCK = 4096


@jit
def _now(box: Array, semaphore: int) -> int:
    """Nanoseconds, by the semaphore's own words."""
    place = semaphore + 8 * SECONDS
    call(box[CLOCK], 1, place, 0, 0)  # the monotonic one
    time = words(place, 2)
    return time[0] * 1_000_000_000 + time[1]


@jit
def _wait(box: Array, semaphore: int) -> int:
    """0 when the semaphore was posted, 1 after sleep; -1 when a signal came."""
    own = words(semaphore, 8)
    if own[AWAY]:
        own[AWAY] -= 1
    elif box[LOOKS]:
        end = now = _now(box, semaphore) + LOOK
        while now <= end:
            if call(box[TRY], semaphore, 0, 0, 0) == 0:
                return 0
            now = _now(box, semaphore)
        own[AWAY] = RESTS * (now > end + SLOW)
    return 1 if call(box[WAIT], semaphore, 0, 0, 0) == 0 else -1


@jit
def _take(box: Array, done: bool) -> int:
    """Returns when there is work for Python: -1, or the number of the command that failed."""
    while True:
        if done:
            call(box[POST], box[DONE], 0, 0, 0)
        done = True
        slept = -1
        while slept < 0:
            slept = _wait(box, box[GIVEN])
        failed = execute(words(box[TABLE], 5 * box[COUNT]).reshape((-1, 5)))
        if box[COUNT] == 0 or failed >= 0:
            end = _now(box, box[GIVEN]) + CALM * (1 - slept)
            while _now(box, box[GIVEN]) < end:
                pass
            return failed


class Handoff(kernel.Handoff):
    """Without Python's lock: semaphores of the C library."""

    def __init__(self) -> None:
        self._semaphores = np.zeros((2, 8), np.int64)
        addresses = [row.ctypes.data for row in self._semaphores]
        self._box = np.array([0, 0, 0, *addresses, *FUNCTIONS])
        self._semaphore, _ = pointers = [*map(ctypes.c_void_p, addresses)]
        for pointer in pointers:
            LIBRARY.sem_init(pointer, 0, 0)
        self.give(None, False)  # compiles all that learners call, here and now
        self.take(True)
        self.wait()
        assert all(each.versions[()].address for each in (_copied, _summed))

    def give(self, rows: Rows | None, often: bool) -> bool:
        self._box[TABLE], self._box[COUNT] = rows or (0, 0)
        self._box[LOOKS] = often
        LIBRARY.sem_post(self._semaphore)
        return rows is not None

    def take(self, done: bool) -> None:
        failed = _take(self._box, done)
        if failed >= 0:
            raise RuntimeError(f"command {failed} of {self._box[COUNT]} failed")

    def wait(self) -> None:
        while _wait(self._box, self._box[DONE]) < 0:
            pass  # Python's handlers of signals run


@native
def _copied(target: Octets, source: Words) -> None:
    given = octets(source[0], len(target))
    for i in range(len(target)):  # assigning a slice copies byte by byte
        target[i] = given[i]


@summed
def _near(x: Array) -> np.float32:
    total = _f(0)
    for i in range(len(x)):
        total += x[i] * x[i]
    return total


@inlined
def _square(x: Array) -> np.float32:
    """|x|^2 as a float32, inf beyond; blocks are added in float64."""
    total = np.float64(0)
    for begin in range(0, len(x), BLOCK):
        total += _near(x[begin : begin + BLOCK])
    return _f(total)


@native
def square(array: Floats, total: Doubles) -> None:
    """total (1,) += |array|^2."""
    total[0] += _square(array)


@native
def _summed(loss: Floats, hits: Floats, total: Doubles, parts: Words, sizes: Words, numbers: Doubles) -> None:
    """numbers <- the sums of loss and hits, and `total` with the squares of pairs' products."""
    numbers[:2] = 0
    numbers[2] = total[0]
    for each in loss:
        numbers[0] += each
    for each in hits:
        numbers[1] += each
    for p in range(0, len(parts), 2):
        numbers[2] += np.float64(_square(floats(parts[p], sizes[p]))) * _square(floats(parts[p + 1], sizes[p + 1]))


class Batch:
    """A learner's batch as commands: its inputs are copied, its `plan`, which is one run, is executed, and its results
    are summed up. Its |gradient|^2 is the plan's `square`, and that of the products of `pairs`."""

    def __init__(self, plan: BoundPlan, pairs: Sequence[tuple[Array, Array]]):
        self._inputs = plan.inputs
        self._square = plan.square
        self._numbers = np.zeros(3)
        self._sources = np.zeros((len(plan.inputs), 1), np.int64)
        copies = [
            _copied.command(target=array.view(np.uint8), source=source)
            for array, source in zip(plan.inputs.values(), self._sources, strict=True)
        ]
        halves = [half for pair in pairs for half in pair]
        sums = _summed.command(
            loss=plan.outputs["loss"], hits=plan.outputs.get("accuracy", np.zeros(0, _f)), total=self._square,
            parts=halves, sizes=np.array([half.size for half in halves], np.int64), numbers=self._numbers,
        )  # fmt: skip
        self.run = together([*copies, *(run for run in plan.runs if isinstance(run, Command)), sums])
        self.rows = self.run.place

    def fill(self, arrays: ArraysByName) -> bool:
        """The next batch has these inputs, which stay until it has run; False where they are of other types."""
        for i, (name, array) in enumerate(self._inputs.items()):
            given = arrays[name]
            if given.shape != array.shape or given.dtype != array.dtype or not given.flags.c_contiguous:
                return False
            self._sources[i] = given.ctypes.data
        self._square[0] = 0
        return True

    def results(self) -> list[float]:
        """Of the last batch: the sums of its losses and of its hits, and |gradient|^2."""
        return self._numbers.tolist()
