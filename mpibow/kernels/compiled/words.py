"""Words in memory by which a plan's passes and other threads wait for each other, without Python.

Processors that store in order show a word behind all that was written before it.
"""

import ctypes
from functools import cache

import numpy as np

from mpibow.graph import Array, kernel

from .code_cache import jit
from .command import Command, call
from .native import Words, native


@native
def signal(word: Words, number: int) -> None:
    word[0] = number


@native
def _wait(word: Words, goal: Words, pauses: Words, pause: int, microseconds: int) -> None:
    while word[0] < goal[0]:
        pauses[0] += 1
        call(pause, microseconds, 0, 0, 0)


def wait(word: Array, goal: Array, pauses: Array) -> Command:
    """As mpibow.graph.kernel.waiting."""
    return _wait.command(word=word, goal=goal, pauses=pauses, pause=usleep(), microseconds=round(1e6 * kernel.PAUSE))


@cache
def usleep() -> int:
    """The address of the C library's."""
    return ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value or 0


@jit
def poll(requests: Array, reached: Array, asked: Array, test: int, sleep: int, pause: int, pauses: int) -> int:
    """Sleeps until all MPI requests at these addresses are over, the first words of all rows of `reached` (k, n) are at
    least the goal asked[0], the bell asked[1] is not 0, or for so many pauses of `pause` us.

    `test` and `sleep` are the addresses of MPI_Test and usleep. Returns MPI's error code, or 0.
    """
    over, found = 0, np.zeros(9, np.int64)  # a flag, and MPI's status
    place = found.ctypes.data
    for _ in range(pauses):
        while over < len(requests):
            code = call(test, requests[over], place, place + 8, 0)
            if code != 0:
                return code
            if found[0] == 0:
                break
            over += 1
        if asked[1] != 0 or 0 < over == len(requests) or reached[:, 0].min() >= asked[0]:
            break
        call(sleep, pause, 0, 0, 0)
    return 0
