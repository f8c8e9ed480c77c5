"""Learners' threads compute side by side: what is compiled runs without the GIL, oneDNN on the thread that calls."""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from mpibow import ops
from mpibow.graph import Array
from mpibow.kernels.compiled.command import call, together
from mpibow.kernels.compiled.native import Words, native
from mpibow.kernels.compiled.numeric import inlined
from mpibow.kernels.compiled.steps import compiled
from tests.kernels.cases import INITIAL, Bench, Case
from tests.kernels.onednn import LIBRARY, PATH, TABLE, needs_onednn

USLEEP = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value or 0
PATIENT = 3_000_000  # tries: some minutes, which only a failure takes


@inlined
def _met(mine: Array, other: Array, usleep: int, tries: int) -> bool:
    """Writes a 1 into `mine`, and waits for one in `other`, asleep for most of the time."""
    mine[0] = 1
    for _ in range(tries):
        if other[0] == 1:
            return True
        call(usleep, 100, 0, 0, 0)  # it might write anywhere, as far as the compiler knows: `other` is read again
    return False


@native
def _meet(mine: Words, other: Words, usleep: int, tries: int) -> int:
    return 0 if _met(mine, other, usleep, tries) else 1


@compiled
def _meet_in_a_pass(mine: Array, other: Array, usleep: int, tries: int) -> bool:
    return _met(mine, other, usleep, tries)


def side_by_side(*runs: Callable[[], object]) -> list[object]:
    with ThreadPoolExecutor(len(runs)) as threads:
        return [done.result() for done in [threads.submit(run) for run in runs]]


def test_commands_run_without_the_gil():
    """Each waits for the other, so it must run meanwhile."""
    a, b = np.zeros(1, np.int64), np.zeros(1, np.int64)
    side_by_side(*(_meet.command(mine=x, other=y, usleep=USLEEP, tries=PATIENT) for x, y in ((a, b), (b, a))))
    assert (a[0], b[0]) == (1, 1)


def test_a_command_that_fails_says_so():
    good, alone = np.ones(1, np.int64), np.zeros(1, np.int64)
    rows = [_meet.command(mine=alone, other=other, usleep=USLEEP, tries=1) for other in (good, alone.copy())]
    with pytest.raises(RuntimeError, match=r"^command 1 of 2 failed$"):
        together(rows)()


def test_passes_over_flat_arrays_run_without_the_gil():
    a, b = np.zeros(1, np.int64), np.zeros(1, np.int64)
    runs = (partial(_meet_in_a_pass, *pair, USLEEP, PATIENT) for pair in ((a, b), (b, a)))
    assert side_by_side(*runs) == [True, True]


@needs_onednn
def test_a_learner_takes_one_thread_of_openmp():
    """Its number of threads is the calling thread's: a new one has as many as there are processors."""
    if LIBRARY.runtime != "OpenMP":
        pytest.skip(f"{PATH} computes {LIBRARY.runtime}")
    bench = Bench(Case(ops.Dense(3, True, INITIAL), ((4, 5),)), TABLE[ops.Dense], "float32")
    run = bench.kernel.forward(bench.call(backward=False))

    def learner() -> tuple[int, int]:
        LIBRARY.c.omp_set_num_threads(3)  # whatever this machine has
        before = LIBRARY.c.omp_get_max_threads()
        run()
        return before, LIBRARY.c.omp_get_max_threads()

    assert side_by_side(learner) == [(3, 1)]
