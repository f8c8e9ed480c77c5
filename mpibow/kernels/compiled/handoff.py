"""Work handed to a waiting thread: a learner's whole batch is commands, which it executes without Python.

Waking a thread that sleeps takes 50 to 100 us, as much as a layer of a small net, so it looks for work a while before
it sleeps, and yields its core to every other thread meanwhile.
"""

import ctypes
from collections.abc import Sequence

import numpy as np

from mpibow.graph import Array, ArraysByName, kernel
from mpibow.graph.bound import BoundPlan
from mpibow.graph.kernel import Rows

from .code_cache import jit
from .command import Command, _execute, call, together
from .native import Doubles, Floats, Octets, Words, floats, native, octets, words
from .numeric import inlined

_f = np.float32
LIBRARY = ctypes.PyDLL(None)  # C's, called without giving up Python's lock
FUNCTIONS = [
    ctypes.cast(LIBRARY[f], ctypes.c_void_p).value for f in ("sched_yield", "sem_trywait", "sem_wait", "sem_post")
]
TABLE, COUNT, LOOKS, GIVEN, DONE, YIELD, TRY, WAIT, POST = range(9)  # words of a box: addresses but for two
OFTEN = 2000  # looks before it sleeps: some 300 us
CALM = 300  # yields in which the other thread leaves Python's lock, as waiting for that is sleep
BLOCK = 4096


@jit
def _wait(box: Array, semaphore: int) -> bool:
    """Returns when the semaphore was posted; whether it did not sleep."""
    for _ in range(box[LOOKS]):
        if call(box[TRY], semaphore, 0, 0, 0) == 0:
            return True
        call(box[YIELD], 0, 0, 0, 0)
    while call(box[WAIT], semaphore, 0, 0, 0) != 0:  # a signal came
        pass
    return False


@jit
def _take(box: Array, done: bool) -> int:
    """Returns when there is work for Python: -1, or the number of the command that failed."""
    while True:
        if done:
            call(box[POST], box[DONE], 0, 0, 0)
        done, awake = True, _wait(box, box[GIVEN])
        failed = _execute(words(box[TABLE], 5 * box[COUNT]).reshape((-1, 5)))
        if box[COUNT] == 0:
            for _ in range(CALM * awake):
                call(box[YIELD], 0, 0, 0, 0)
        if box[COUNT] == 0 or failed >= 0:
            return failed


class Handoff(kernel.Handoff):
    """Without Python's lock: semaphores of the C library."""

    def __init__(self) -> None:
        self._semaphores = np.zeros((2, 8), np.int64)  # a cache line each
        addresses = [row.ctypes.data for row in self._semaphores]
        self._box = np.array([0, 0, 0, *addresses, *FUNCTIONS])
        self._semaphore, _ = pointers = [*map(ctypes.c_void_p, addresses)]
        for pointer in pointers:
            LIBRARY.sem_init(pointer, 0, 0)

    def give(self, rows: Rows | None, often: bool) -> bool:
        self._box[TABLE], self._box[COUNT] = rows or (0, 0)
        self._box[LOOKS] = OFTEN * often
        LIBRARY.sem_post(self._semaphore)
        return rows is not None

    def take(self, done: bool) -> None:
        failed = _take(self._box, done)
        if failed >= 0:
            raise RuntimeError(f"command {failed} of {self._box[COUNT]} failed")

    def wait(self) -> None:
        _wait(self._box, self._box[DONE])


@native
def _copied(target: Octets, source: Words) -> None:
    given = octets(source[0], len(target))
    for i in range(len(target)):
        target[i] = given[i]


@inlined
def _square(x: Array) -> float:
    """|x|^2: blocks in float32, which are added in float64."""
    total = np.float64(0)
    for a in range(0, len(x), BLOCK):
        block = _f(0)
        for i in range(a, min(a + BLOCK, len(x))):
            block = _f(block + x[i] * x[i])
        total = total + block
    return total


@native
def _summed(loss: Floats, hits: Floats, parts: Words, sizes: Words, whole: int, numbers: Doubles) -> None:
    """numbers <- the sums of loss and hits, and the squares of the first `whole` parts and of pairs' products."""
    numbers[:] = 0
    for each in loss:
        numbers[0] += each
    for each in hits:
        numbers[1] += each
    for p in range(whole):
        numbers[2] += _square(floats(parts[p], sizes[p]))
    for p in range(whole, len(parts), 2):
        numbers[2] += _square(floats(parts[p], sizes[p])) * _square(floats(parts[p + 1], sizes[p + 1]))


class Batch:
    """A learner's batch as commands: its inputs are copied, its `plan`, which is one run, is executed, and its results
    are summed up. Its gradient is of `parts`, and of products of `pairs`."""

    def __init__(self, plan: BoundPlan, parts: Sequence[Array], pairs: Sequence[tuple[Array, Array]]) -> None:
        self._inputs, self._numbers = plan.inputs, np.zeros(3)
        self._sources = np.zeros((len(plan.inputs), 1), np.int64)
        copies = [
            _copied.command(target=array.view(np.uint8), source=source)
            for array, source in zip(plan.inputs.values(), self._sources, strict=True)
        ]
        every = [*parts, *(half for pair in pairs for half in pair)]
        sums = _summed.command(
            loss=plan.outputs["loss"], hits=plan.outputs.get("accuracy", np.zeros(0, _f)), parts=every,
            sizes=np.array([part.size for part in every]), whole=len(parts), numbers=self._numbers,
        )  # fmt: skip
        self.run = together([*copies, *(run for run in plan.runs if isinstance(run, Command)), sums])
        self.rows = self.run.table.ctypes.data, len(self.run.table)

    def fill(self, arrays: ArraysByName) -> bool:
        """The next batch has these inputs, which stay until it has run; False where they are of other types."""
        for i, (name, array) in enumerate(self._inputs.items()):
            given = arrays[name]
            if given.shape != array.shape or given.dtype != array.dtype or not given.flags.c_contiguous:
                return False
            self._sources[i] = given.ctypes.data
        return True

    def results(self) -> list[float]:
        """Of the last batch: the sums of its losses and of its hits, and |gradient|^2."""
        return self._numbers.tolist()
